package report

import (
	"errors"
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

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
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
	standing.Conditions = []metav1.Condition{{Type: "UpdateInProgress", Status: metav1.ConditionTrue}}
	s.stands("a", standing, 1)
	HandshakeFailed("webhooks")
	p, _ := newProtection()
	ForeignWebhooks("c", []string{"w"})
	return slices.Concat(s.Metrics(), p.Metrics(), HoldMetrics(), RoleMetrics(), WatchMetrics(), ServerMetrics(),
		BuildMetrics("v", "c", "g"), CertificateMetrics(func() (time.Time, error) { return time.Unix(1, 0), nil }))
}

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "(.*)", unit: "", constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}\}$`)

// row is the row of a metric in the table.
func row(t *testing.T, desc *prometheus.Desc, kind string) string {
	t.Helper()
	parts := described.FindStringSubmatch(desc.String())
	expect.Must(t, parts != nil, "the description %s has another form", desc)
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
	expect.OK(t, m.Write(&written))
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

// tableOf has a row for each metric, by name.
func tableOf(t *testing.T) string {
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
	page := expect.Value(os.ReadFile(tablePage))(t)
	before, rest, begun := strings.Cut(string(page), tableBegin)
	written, after, ended := strings.Cut(rest, tableEnd)
	expect.Must(t, begun && ended, "%s has no table between %q and %q", tablePage, tableBegin, tableEnd)
	want := tableOf(t)
	if *update {
		expect.OK(t, os.WriteFile(tablePage, []byte(before+tableBegin+want+tableEnd+after), 0o600))
		return
	}
	expect.Equalf(t, want, written, "run with -update")
}

// No metric that the code names is missing from the table.
func TestTableHasEveryMetric(t *testing.T) {
	rows, names := tableOf(t), regexp.MustCompile(`"(lockstep_\w*[a-z])"`)
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range names.FindAllStringSubmatch(string(source), -1) {
			expect.Says(t, rows, "| `"+found[1]+"` |", path, found[1])
		}
		return err
	})
	expect.OK(t, err)
	n := len(slices.Collect(strings.Lines(rows)))
	expect.That(t, n >= 20, "the table has %d lines", n)
}

func deleted(name string, at int64) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), DeletionTimestamp: &metav1.Time{Time: time.Unix(at, 0)},
	}}
}

func newProtection() (*Protection, *recorder) {
	r := &recorder{}
	return NewProtection(r, func() time.Time { return time.Unix(1000, 0) }, func() int { return 7 }), r
}

func TestTerminatingPVCsAreCounted(t *testing.T) {
	p, _ := newProtection()
	living := deleted("living", 1)
	living.DeletionTimestamp = nil
	p.Held(living, HeldByPods)
	p.Held(deleted("a", 900), HeldByOther)
	p.Held(deleted("a", 900), HeldByPods) // for another reason now
	p.Held(deleted("b", 990), HeldByPods)
	p.Held(deleted("gone", 10), HeldUnread)
	p.Gone(types.NamespacedName{Namespace: "ns", Name: "gone"})
	want := map[string]float64{
		"protection_claims_held InUse": 2, "protection_oldest_terminating_seconds": 100, "protection_queue_depth": 7,
	}
	expect.Equal(t, want, fakeapi.Metrics(t, p.metrics[6:]...))
}

func TestEventsOfADeletion(t *testing.T) {
	p, r := newProtection()
	claim := deleted("a", 900)
	for range 2 {
		p.Postponed(claim, action.Reason{Sentence: "pod x on node n"})
	}
	for range 2 {
		p.Slipped(claim, "pod y on node n")
	}
	p.Released(claim, pvc.PodsFinalizer, []string{pvc.BarrierFinalizer})
	for range 2 {
		p.Released(claim, pvc.BarrierFinalizer, []string{"example.com/x"})
	}
	want := [][2]string{{"Normal DeletionPostponed/", "pod x"}, {"Warning UsedWithoutProtection/", "pod y"}, {"Normal DeletionReleased/", "example.com/x"}}
	expect.Must(t, len(r.told) == len(want), "got %q", r.told)
	for i, w := range want {
		expect.That(t, strings.HasPrefix(r.told[i], w[0]) && strings.Contains(r.told[i], w[1]),
			"got %q, want %q", r.told[i], w)
	}
}

func TestPVCsAreCountedByTheirLastVerdict(t *testing.T) {
	r := &recorder{}
	h := NewHolds(New(r))
	judge := func(name, uid string, state pvc.State, reasons ...string) {
		d := pvc.HoldVerdict{State: state}
		for _, reason := range reasons {
			d.Holders = append(d.Holders, pvc.Holder{Name: "StatefulSet/db", Reason: reason})
		}
		h.Judged(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}, d)
	}
	for step, tt := range []struct {
		do   func()
		want map[string]float64
		told int
	}{
		{func() {
			judge("a", "1", pvc.Held, pvc.BoundPod, pvc.DesiredState)
			judge("b", "2", pvc.Held, pvc.DesiredState, pvc.DesiredState)
		}, map[string]float64{"_states Held": 2, "s_in_use BoundPod": 1, "s_in_use DesiredState": 2}, 0},
		{func() { judge("b", "2", pvc.Cooling) }, map[string]float64{"_states Held": 1, "_states Cooling": 1, "s_in_use BoundPod": 1, "s_in_use DesiredState": 1}, 0},
		{func() { judge("b", "2", pvc.Free) }, map[string]float64{"_states Held": 1, "s_in_use BoundPod": 1, "s_in_use DesiredState": 1}, 0},
		{func() { judge("a", "1", pvc.Doomed, pvc.DesiredState) }, map[string]float64{"_states Doomed": 1, "s_in_use DesiredState": 1}, 1},
		{func() { judge("a", "1", pvc.Doomed, pvc.DesiredState) }, map[string]float64{"_states Doomed": 1, "s_in_use DesiredState": 1}, 1},
		{func() { judge("a", "another", pvc.Doomed) }, map[string]float64{"_states Doomed": 1}, 2},
		{func() {
			for _, name := range []string{"a", "b", "never"} {
				h.Gone(types.NamespacedName{Namespace: "ns", Name: name})
			}
		}, map[string]float64{}, 2},
	} {
		tt.do()
		got := map[string]float64{}
		for name, value := range fakeapi.Metrics(t, claimStates, claimsInUse) {
			got[strings.TrimPrefix(name, "protection_claim")] = value
		}
		expect.Equalf(t, tt.want, got, "step %d", step)
		expect.Equalf(t, tt.told, len(r.told), "step %d: events", step)
	}
}

func TestUsesOfReleases(t *testing.T) {
	r := &recorder{}
	h := NewHolds(New(r))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1",
		Annotations: map[string]string{pvc.HoldersAnnotation: "StatefulSet/db", pvc.ReleaseAnnotation: "1"}}}
	namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "2", Annotations: map[string]string{pvc.HeldClaimsAnnotation: "3"}}}
	left, _ := pvc.TellLeft(claim)
	h.Left(claim, namespace, left)
	if len(r.told) != 2 || !strings.Contains(r.told[0], "StatefulSet/db") || !strings.Contains(r.told[1], "data") {
		t.Errorf("got %q", r.told)
	}
	h.Ends(namespace)
	namespace.Annotations[pvc.ReleaseAnnotation] = "2"
	h.Ends(namespace)
	expect.That(t, len(r.told) == 3 && strings.Contains(r.told[2], "3"), "got %q", r.told)
}

func TestMissingPoliciesAreLoggedOnceAndCounted(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	policies := &Policies{Log: log}
	for step, tt := range []struct {
		do    func()
		says  string
		value float64
	}{
		{func() { policies.Missing(nil, nil) }, "", 0},
		{func() { policies.Missing([]string{"refuse-delete"}, nil) }, "refuse-delete", 1},
		{func() { policies.Missing([]string{"refuse-delete"}, nil) }, "", 1},
		{func() { policies.Missing(nil, errors.New("forbidden")) }, "forbidden", 1},
		{func() { policies.Missing(nil, errors.New("forbidden")) }, "", 1},
		{func() { policies.Missing([]string{"refuse-delete", "guard"}, nil) }, "guard", 2},
		{func() { policies.Missing(nil, nil) }, "no policy", 0},
	} {
		lines = nil
		tt.do()
		said, value := strings.Join(lines, "\n"), 0.0
		for _, v := range fakeapi.Metrics(t, policiesMissing) {
			value += v
		}
		if (said == "") != (tt.says == "") || !strings.Contains(strings.ToLower(said), strings.ToLower(tt.says)) || value != tt.value {
			t.Errorf("step %d: logged %q, counted %v", step, said, value)
		}
	}
}
