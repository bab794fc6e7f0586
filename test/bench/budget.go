package main

import (
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

// budget is what figures are compared with.
type budget struct {
	// Machine is where the ranges were measured. On another, only targets count.
	Machine machine `json:"machine"`
	// Figures holds, by name, what a figure is to be.
	Figures map[string]allowance `json:"figures"`
	// Runs are those that set the ranges. The bench reads nothing of them.
	Runs []map[string]any `json:"runs"`
}

// allowance is what one figure may be.
type allowance struct {
	// Target is what is to be reached, at most or, with Least, at least.
	Target *float64 `json:"target,omitempty"`
	Least  bool     `json:"least,omitempty"`
	// Range is between what the figure was in the runs below: beyond it something
	// has changed, for better or worse.
	Range []float64 `json:"range,omitempty"`
}

// readBudget reads a budget; without a path there is none.
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
	for name, a := range b.Figures {
		if len(a.Range) != 0 && (len(a.Range) != 2 || a.Range[0] > a.Range[1]) {
			return nil, fmt.Errorf("%s: %s: a range is two numbers, the lower first", path, name)
		}
	}
	return b, nil
}

// judge returns what is wrong, or better, with a figure, or nothing.
func (b *budget) judge(f figure) string {
	a := b.Figures[f.name]
	target := "at most"
	sign := 1.0 // more is worse
	if a.Least {
		target, sign = "at least", -1
	}
	if a.Target != nil && sign*f.value > sign**a.Target {
		return fmt.Sprintf("TARGET MISSED: %s is %s, to be %s %s", f.name, short(f.value), target, short(*a.Target))
	}
	if b.Machine != newReport(settings{}).machine || len(a.Range) != 2 || f.value >= a.Range[0] && f.value <= a.Range[1] {
		return ""
	}
	verdict := "better than its range"
	if worse := f.value > a.Range[1]; worse != a.Least {
		verdict = "BEYOND ITS RANGE"
	}
	return fmt.Sprintf("%s: %s is %s, was %s to %s", verdict, f.name, short(f.value), short(a.Range[0]), short(a.Range[1]))
}

// compare returns an error for every figure that is worse than it may be.
func (b *budget) compare(r *report) (err error) {
	for _, f := range r.figures {
		if verdict := b.judge(f); verdict != "" && !strings.HasPrefix(verdict, "better") {
			err = errors.Join(err, errors.New(verdict))
		}
	}
	return err
}

// report is the result of one run of the bench.
type report struct {
	when     time.Time
	commit   string
	machine  machine
	settings settings
	figures  figures
	loads    map[string]float64 // the load average after each scenario
}

// machine is what the figures depend on beside the program.
type machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
}

func newReport(s settings) *report {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return &report{
		when: time.Now().UTC().Truncate(time.Second), commit: strings.TrimSpace(string(commit)), settings: s,
		machine: machine{Processor: processor(), Cores: runtime.NumCPU()}, loads: map[string]float64{},
	}
}

// controllerManager is the client limit of the controller manager.
func (r *report) controllerManager() string {
	return fmt.Sprintf("%d queries/s, burst %d", r.settings.qps, (3*r.settings.qps+1)/2)
}

func (r *report) heading() string {
	return fmt.Sprintf("%s, %d cores; %d simulated nodes; controller manager at %s; commit %s; median of %d",
		r.machine.Processor, r.machine.Cores, r.settings.nodes, r.controllerManager(), r.commit, r.settings.repeat)
}

// add adds the figures of a scenario, and prints them, each with its verdict.
func (r *report) add(out io.Writer, scenario string, f figures, b *budget) {
	r.figures, r.loads[scenario] = append(r.figures, f...), loadAverage()
	for _, one := range f {
		fmt.Fprintf(out, "  %-45s %10s  %s\n", one.name, short(one.value), b.judge(one))
	}
	fmt.Fprintf(out, "  load average %.1f\n", r.loads[scenario])
}

// record appends the run to a file whose last key is "runs".
func (r *report) record(path string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "- when: %s\n  commit: %s\n  machine: {processor: %q, cores: %d}\n  controllerManager: %q\n  median: %d\n  figures:\n",
		r.when.Format(time.RFC3339), r.commit, r.machine.Processor, r.machine.Cores, r.controllerManager(), r.settings.repeat)
	for _, f := range r.figures {
		fmt.Fprintf(&text, "    %s: %s\n", f.name, short(f.value))
	}
	var loads []string
	for name, load := range r.loads {
		loads = append(loads, fmt.Sprintf("%s: %.1f", name, load))
	}
	slices.Sort(loads)
	fmt.Fprintf(&text, "  load: {%s}\n", strings.Join(loads, ", "))
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(text.String())
	return err
}

// loadAverage is how many processes wanted to compute in the last minute.
func loadAverage() float64 {
	if system, err := procfs.NewDefaultFS(); err == nil {
		if load, err := system.LoadAvg(); err == nil {
			return load.Load1
		}
	}
	return 0
}

// processor is the name of the processor.
func processor() string {
	if system, err := procfs.NewDefaultFS(); err == nil {
		if all, err := system.CPUInfo(); err == nil && len(all) > 0 {
			return all[0].ModelName
		}
	}
	return "unknown"
}

// short is a number with no more digits than it is good for.
func short(value float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", value), "0"), ".")
}
