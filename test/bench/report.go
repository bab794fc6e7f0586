package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

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

// short is a number with no more digits than it is good for.
func short(value float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", value), "0"), ".")
}
