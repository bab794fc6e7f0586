package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
	"sigs.k8s.io/yaml"
)

// budget is what figures may be, by name.
type budget struct {
	Figures map[string]allowance `json:"figures"`
}

// allowance is what one figure may be: at most, or with Least at least, its target.
type allowance struct {
	Target float64 `json:"target"`
	Least  bool    `json:"least,omitempty"`
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
	return b, nil
}

// judge returns what is wrong with a figure, or nil.
func (b *budget) judge(f figure) error {
	a, known := b.Figures[f.name]
	switch {
	case known && a.Least && f.value < a.Target:
		return fmt.Errorf("TARGET MISSED: %s is %s, to be at least %s", f.name, short(f.value), short(a.Target))
	case known && !a.Least && f.value > a.Target:
		return fmt.Errorf("TARGET MISSED: %s is %s, to be at most %s", f.name, short(f.value), short(a.Target))
	}
	return nil
}

// heading says what the figures depend on beside the program.
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
