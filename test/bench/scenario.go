package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"sigs.k8s.io/yaml"
)

// scenario is a measured action of users.
type scenario struct {
	name, about string
	run         func(*bed)
	// cold scenarios have no sets, and need no warm-up.
	cold bool
}

// scenarios are in the order in which they run: the largest comes last.
var scenarios = []scenario{
	{"create-100x8", "create 100 groups of 8", create(100, 8), false},
	{"create-500x2", "create 500 groups of 2", create(500, 2), false},
	{"roll-100x8", "give 100 groups of 8 another template, maxUnavailable 10", roll, false},
	{"dset-create-50x2", "create 50 DisaggregatedSets of 2 roles, each of 2 groups of 1; the floor has their LeaderWorkerSets alone", createRoles(50), false},
	{"dset-roll-20x2", "give both roles of 20 DisaggregatedSets another template, maxSurge 1; the floor has their LeaderWorkerSets alone", rollRoles(20), false},
	{"kill-one", "delete one worker of a group of 8, 25 times; the group is recreated", killOne, false},
	{"kill-40", "delete one worker in each of 40 groups at once", killForty, false},
	{"end-group", "delete a leader of groups of 4 whose pods take 3 s to end; podTerminationPolicy Parallel, and Default", ended(endGroup), false},
	{"roll-10x4", "give 10 such groups another template, maxUnavailable 2, 2 s to readiness", ended(endRoll), false},
	{"delete-10x4", "delete a set of 10 such groups", ended(endSet), false},
	{"idle-100x8", "a compressed hour without changes: resyncs and meaningless writes", idle, false},
	{"admit-claims", "create and delete PVCs with the admission policies and without", admit, true},
	{"release-1000", "release 1,000 deleted PVCs among 10,000 pods, and beside the built-in controller", release, true},
	{"restart-1000x8", "restart the operator beside 1,000 groups of 8; then the cost of an event there and at 10 groups", restartOperator, false},
}

// errInvalid marks a run that does not count, because it did not reach its load.
var errInvalid = errors.New("invalid run")

// stop is the panic value of a scenario that cannot continue. attempt returns its error.
type stop struct{ error }

func must(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// valid stops the run as invalid unless a condition holds.
func valid(holds bool, format string, values ...any) {
	if !holds {
		must(fmt.Errorf("%w: %s", errInvalid, fmt.Sprintf(format, values...)))
	}
}

// attempt runs a function and returns the error that it stopped with.
func attempt(do func()) (err error) {
	defer func() {
		switch end := recover().(type) {
		case nil:
		case stop:
			err = end.error
		default:
			panic(end)
		}
	}()
	do()
	return nil
}

// figure is one result of a scenario.
type figure struct {
	name  string // "create-100x8.ratio"
	value float64
}

// figures are the results of one scenario, in the order of their output.
type figures []figure

func (f *figures) add(name string, value float64) { *f = append(*f, figure{name, value}) }

// String returns the figures in one line.
func (f figures) String() string {
	var line strings.Builder
	for _, one := range f {
		_, name, _ := strings.Cut(one.name, ".")
		fmt.Fprintf(&line, " %s %s", name, short(one.value))
	}
	return line.String()
}

// tell adds a figure to the current scenario.
func (b *bed) tell(name string, value float64) { b.figures.add(b.scenario+"."+name, value) }

// measure runs a scenario several times and returns the median of each figure. last is true for the
// last scenario.
func (b *bed) measure(one scenario, repeat int, last bool) (figures, error) {
	var all []figures
	for i := range repeat {
		b.last = last && i == repeat-1
		b.scenario, b.figures, b.left, b.turn = one.name, nil, nil, i
		err := attempt(func() { one.run(b) })
		all = append(all, b.figures)
		if repeat > 1 && err == nil {
			fmt.Printf("  run %d of %s:%s\n", i+1, one.name, b.figures)
		}
		if err = errors.Join(err, b.left); err != nil {
			return medians(all), err // the figures of an invalid run may show the reason
		}
	}
	return medians(all), nil
}

// medians returns the median of each figure over several runs.
func medians(runs []figures) (result figures) {
	if len(runs) == 0 {
		return nil
	}
	for i, first := range runs[0] {
		var values []float64
		for _, run := range runs {
			if i < len(run) && run[i].name == first.name {
				values = append(values, run[i].value)
			}
		}
		slices.Sort(values)
		result.add(first.name, values[len(values)/2])
	}
	return result
}

// pause waits.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
		must(ctx.Err())
	case <-time.After(d):
	}
}

// percentile returns a percentile of sorted values: the least value that p in a hundred do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max((len(sorted)*p+99)/100-1, 0)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// budget has the allowed values of figures, by name.
type budget struct {
	Figures map[string]allowance `json:"figures"`
}

// allowance limits one figure: to at most its target, or with Least to at least its target.
type allowance struct {
	Target float64 `json:"target"`
	Least  bool    `json:"least,omitempty"`
}

// readBudget reads a budget. Without a path it returns an empty one.
func readBudget(path string) (*budget, error) {
	b := &budget{}
	if path == "" {
		return b, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(text, b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// judge returns an error for a figure that misses its target.
func (b *budget) judge(f figure) error {
	a, known := b.Figures[f.name]
	switch {
	case known && a.Least && f.value < a.Target:
		return fmt.Errorf("TARGET MISSED: %s is %s, want at least %s", f.name, short(f.value), short(a.Target))
	case known && !a.Least && f.value > a.Target:
		return fmt.Errorf("TARGET MISSED: %s is %s, want at most %s", f.name, short(f.value), short(a.Target))
	}
	return nil
}

// heading describes the machine and the settings that the figures depend on.
func (s settings) heading() string {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return fmt.Sprintf("%s, %d cores; %d simulated nodes; controller manager at %d queries/s, burst %d; commit %s; median of %d",
		processor(), runtime.NumCPU(), s.nodes, s.qps, (3*s.qps+1)/2, strings.TrimSpace(string(commit)), s.repeat)
}

// print prints figures, each with its verdict, and returns an error for each that misses its
// target.
func (b *budget) print(out io.Writer, all figures) (missed error) {
	for _, one := range all {
		mark := ""
		if verdict := b.judge(one); verdict != nil {
			missed, mark = errors.Join(missed, verdict), verdict.Error()
		}
		fmt.Fprintf(out, "  %-45s %10s  %s\n", one.name, short(one.value), mark)
	}
	fmt.Fprintf(out, "  load average %.1f\n", loadAverage())
	return missed
}

// system is /proc. On systems without it, nothing can be read.
var system, _ = procfs.NewDefaultFS()

// loadAverage returns the average number of runnable processes in the last minute.
func loadAverage() float64 {
	if load, err := system.LoadAvg(); err == nil {
		return load.Load1
	}
	return 0
}

// processor returns the name of the processor.
func processor() string {
	if all, err := system.CPUInfo(); err == nil && len(all) > 0 {
		return all[0].ModelName
	}
	return "unknown"
}

// short prints a number with at most three decimal places.
func short(value float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", value), "0"), ".")
}
