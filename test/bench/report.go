package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what one run of the bench came to.
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
	return &report{
		when: time.Now().UTC().Truncate(time.Second), commit: commit(), settings: s,
		machine: machine{Processor: processor(), Cores: runtime.NumCPU()}, loads: map[string]float64{},
	}
}

// commit is what is checked out here, if anybody can tell.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// controllerManager is the client limit of the controller manager.
func (r *report) controllerManager() string {
	return fmt.Sprintf("%d queries/s, burst %d", r.settings.qps, (3*r.settings.qps+1)/2)
}

func (r *report) heading() string {
	return fmt.Sprintf("%s, %d cores; %d simulated nodes; controller manager at %s; commit %s; median of %d",
		r.machine.Processor, r.machine.Cores, r.settings.nodes, r.controllerManager(), r.commit, r.settings.repeat)
}

func (r *report) add(f figures) { r.figures = append(r.figures, f...) }

// columns are the figures that stand side by side; all others get lines of their own.
var columns = []struct{ suffix, title, format string }{
	{".seconds", "own", "%.2fs"}, {".floor-seconds", "floor", "%.2fs"}, {".ratio", "ratio", "%.2f"},
	{".writes", "writes", "%.0f"}, {".events", "events", "%.0f"}, {".reads", "reads", "%.0f"},
	{".pods-created", "pods", "%.0f"}, {".cpu-seconds", "CPU", "%.2fs"},
}

// print writes the table of one scenario.
func (r *report) print(out io.Writer, scenario string, b *budget) {
	r.loads[scenario] = loadAverage()
	rows, others := r.table(scenario)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\t")
	for _, column := range columns {
		fmt.Fprintf(w, "%s\t", column.title)
	}
	fmt.Fprintln(w)
	for _, row := range rows {
		fmt.Fprintf(w, "%s\t", row.name)
		for _, column := range columns {
			text := "–"
			if value, ok := row.cells[column.suffix]; ok {
				text = fmt.Sprintf(column.format, value)
			}
			fmt.Fprintf(w, "%s\t", text)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	for _, f := range others {
		fmt.Fprintf(out, "  %s %.2f\n", f.name, f.value)
	}
	for _, f := range append(others, r.told(scenario)...) {
		if verdict := b.judge(f); verdict != "" {
			fmt.Fprintf(out, "  %s\n", verdict)
		}
	}
	fmt.Fprintf(out, "  load average %.1f\n", r.loads[scenario])
}

type row struct {
	name  string
	cells map[string]float64
}

// table sorts the figures of a scenario into rows, and those that fit no column.
func (r *report) table(scenario string) (rows []row, others figures) {
	for _, f := range r.figures {
		name, suffix := split(f.name)
		if belongs := f.name == scenario || strings.HasPrefix(f.name, scenario+".") || scenario == "restart-1000x8" && strings.HasPrefix(f.name, "event."); !belongs {
			continue
		}
		if !isColumn(suffix) {
			others = append(others, f)
			continue
		}
		if len(rows) == 0 || rows[len(rows)-1].name != name {
			rows = append(rows, row{name: name, cells: map[string]float64{}})
		}
		rows[len(rows)-1].cells[suffix] = f.value
	}
	return rows, others
}

// told are the figures of a scenario that stand in columns.
func (r *report) told(scenario string) (found figures) {
	for _, f := range r.figures {
		if _, suffix := split(f.name); isColumn(suffix) && strings.HasPrefix(f.name, scenario+".") {
			found = append(found, f)
		}
	}
	return found
}

func split(name string) (row, suffix string) {
	i := strings.LastIndexByte(name, '.')
	return name[:max(i, 0)], name[max(i, 0):]
}

func isColumn(suffix string) bool {
	for _, column := range columns {
		if column.suffix == suffix {
			return true
		}
	}
	return false
}

// record appends the run to a file whose last key is "runs".
func (r *report) record(path string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "- when: %s\n  commit: %s\n  machine: {processor: %q, cores: %d}\n  controllerManager: %q\n  median: %d\n  figures:\n",
		r.when.Format(time.RFC3339), cmp.Or(r.commit, "unknown"), r.machine.Processor, r.machine.Cores, r.controllerManager(), r.settings.repeat)
	for _, f := range r.figures {
		fmt.Fprintf(&text, "    %s: %s\n", f.name, short(f.value))
	}
	fmt.Fprintf(&text, "  load: {")
	first := true
	for _, one := range scenarios {
		if load, ok := r.loads[one.name]; ok {
			if !first {
				text.WriteString(", ")
			}
			first = false
			fmt.Fprintf(&text, "%s: %.1f", one.name, load)
		}
	}
	text.WriteString("}\n")
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(text.String()); err != nil {
		return err
	}
	return file.Close()
}

// short is a number with no more digits than it is good for.
func short(value float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", value), "0"), ".")
}
