package report

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/lws"
)

var update = flag.Bool("update", false, "write the table of metrics to docs/metrics.md")

const (
	tablePage  = "../../docs/metrics.md"
	tableBegin = "<!-- table: go test ./internal/report -run Table -update -->\n"
	tableEnd   = "<!-- end of table -->\n"
)

// all are the collectors that the operator registers, with a series for each metric that has no labels of its own.
func all() []prometheus.Collector {
	s := newStage()
	standing := inStates(map[lws.GroupState]int32{lws.GroupStarting: 1})
	standing.Conditions = []metav1.Condition{{Type: "Progressing", Status: metav1.ConditionTrue}}
	s.stands("a", standing, 1)
	HandshakeFailed("webhooks")
	p, _ := newProtection()
	ForeignWebhooks("c", []string{"w"})
	return slices.Concat(s.Metrics(), p.Metrics(), HoldMetrics(), NewPolicies(logr.Discard()).Metrics(), WatchMetrics(), ServerMetrics(),
		BuildMetrics("v", "c", "g"), CertificateMetrics(func() (time.Time, error) { return time.Unix(1, 0), nil }))
}

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "(.*)", unit: "", constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}\}$`)

// row is the row of a metric in the table.
func row(t *testing.T, desc *prometheus.Desc, kind string) string {
	t.Helper()
	parts := described.FindStringSubmatch(desc.String())
	if parts == nil {
		t.Fatalf("the description %s has another form", desc)
	}
	labels := strings.FieldsFunc(parts[4], func(r rune) bool { return r == ',' })
	for pair := range strings.SplitSeq(parts[3], ",") {
		if name, _, constant := strings.Cut(pair, "="); constant {
			labels = append(labels, name)
		}
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", parts[1], kind, strings.Join(labels, ", "), parts[2])
}

// kindOf returns the type of the metrics of a collector with one description.
func kindOf(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	return kindOfMetric(t, (<-collected(c)))
}

func kindOfMetric(t *testing.T, m prometheus.Metric) string {
	t.Helper()
	var written dto.Metric
	if err := m.Write(&written); err != nil {
		t.Fatal(err)
	}
	switch {
	case written.Counter != nil:
		return "counter"
	case written.Gauge != nil:
		return "gauge"
	}
	t.Fatalf("%s has another type", m.Desc())
	return ""
}

func collected(c prometheus.Collector) <-chan prometheus.Metric {
	metrics := make(chan prometheus.Metric, 100)
	c.Collect(metrics)
	close(metrics)
	return metrics
}

// table has a row for each metric, by name.
func table(t *testing.T) string {
	var rows []string
	for _, c := range all() {
		if s, several := c.(*sets); several {
			for m := range collected(s) {
				rows = append(rows, row(t, m.Desc(), kindOfMetric(t, m)))
			}
			continue
		}
		descs := make(chan *prometheus.Desc, 10)
		c.Describe(descs)
		rows = append(rows, row(t, <-descs, kindOf(t, c)))
	}
	slices.Sort(rows)
	return "| metric | type | labels | help |\n| --- | --- | --- | --- |\n" + strings.Join(slices.Compact(rows), "\n") + "\n"
}

func TestTableOfMetrics(t *testing.T) {
	page, err := os.ReadFile(tablePage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(page), tableBegin)
	written, after, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		t.Fatalf("%s has no table between %q and %q", tablePage, tableBegin, tableEnd)
	}
	want := table(t)
	if *update {
		if err := os.WriteFile(tablePage, []byte(before+tableBegin+want+tableEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, written); diff != "" {
		t.Errorf("run with -update (-want +written)\n%s", diff)
	}
}

// No metric that the code names is missing from the table.
func TestTableHasEveryMetric(t *testing.T) {
	rows, names := table(t), regexp.MustCompile(`"(lockstep_\w*[a-z])"`)
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range names.FindAllStringSubmatch(string(source), -1) {
			if !strings.Contains(rows, "| `"+found[1]+"` |") {
				t.Errorf("%s names %s, which is not in the table", path, found[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.Collect(strings.Lines(rows))); n < 20 {
		t.Errorf("the table has %d lines", n)
	}
}
