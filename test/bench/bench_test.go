package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

func here() machine { return newReport(settings{}).machine }

func TestAFigureIsJudgedByTargetAndRange(t *testing.T) {
	ten := 10.0
	for _, tt := range []struct {
		name   string
		a      allowance
		away   bool // another machine
		value  float64
		begins string
		fails  bool
	}{
		{"within its target", allowance{Target: &ten}, false, 10, "", false},
		{"beyond its target", allowance{Target: &ten}, true, 11, "TARGET MISSED", true},
		{"at least", allowance{Target: &ten, Least: true}, false, 9, "TARGET MISSED", true},
		{"more than at least", allowance{Target: &ten, Least: true}, false, 11, "", false},
		{"within its range", allowance{Range: []float64{1, 2}}, false, 2, "", false},
		{"worse than its range", allowance{Range: []float64{1, 2}}, false, 3, "BEYOND", true},
		{"worse, on another machine", allowance{Range: []float64{1, 2}}, true, 3, "", false},
		{"better than its range", allowance{Range: []float64{1, 2}}, false, 0.5, "better", false},
		{"lower where more is better", allowance{Range: []float64{1, 2}, Least: true}, false, 0.5, "BEYOND", true},
		{"higher where more is better", allowance{Range: []float64{1, 2}, Least: true}, false, 3, "better", false},
	} {
		b := &budget{Machine: here(), Figures: map[string]allowance{"a.b": tt.a}}
		if tt.away {
			b.Machine.Cores++
		}
		f := figure{"a.b", tt.value}
		if got := b.judge(f); !strings.HasPrefix(got, tt.begins) || (tt.begins == "") != (got == "") {
			t.Errorf("%s: %q", tt.name, got)
		}
		if err := b.compare(&report{figures: figures{f, {"not known", 99}}}); (err != nil) != tt.fails {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestTheBudgetIsSoundAndNamesScenarios(t *testing.T) {
	b, err := readBudget("budget.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"event": true}
	for _, one := range scenarios {
		known[one.name] = true
	}
	for name := range b.Figures {
		if scenario, _, ok := strings.Cut(name, "."); !ok || !known[scenario] {
			t.Errorf("%s is of no scenario", name)
		}
	}
}

func TestARunIsRecordedAsTheBudgetReadsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "budget.yaml")
	if err := os.WriteFile(path, []byte("figures: {}\nruns:\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReport(settings{qps: 20, repeat: 3})
	r.add(figures{{"kill-one.seconds", 1.25}, {"kill-one.writes", 2}})
	r.loads["kill-one"] = 1.5
	for range 2 {
		if err := r.record(path); err != nil {
			t.Fatal(err)
		}
	}
	b, err := readBudget(path)
	if err != nil || len(b.Runs) != 2 {
		t.Fatalf("%d runs, %v", len(b.Runs), err)
	}
	want := map[string]any{"kill-one.seconds": 1.25, "kill-one.writes": 2.0}
	if diff := cmp.Diff(want, b.Runs[1]["figures"]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestARunEndsWithWhatItIsWorth(t *testing.T) {
	ten := 10.0
	b := &budget{Figures: map[string]allowance{"a.b": {Target: &ten}}}
	missed := b.compare(&report{figures: figures{{"a.b", 11}}})
	invalid := fmt.Errorf("idle: %w: nothing was touched", errInvalid)
	for err, want := range map[error]int{nil: 0, missed: 1, invalid: 2, errors.Join(missed, invalid): 2} {
		if got := codeOf(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

func TestTheAftermathOfAKillTellsLivesApart(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	deletes := func(agent, name string, second, code int) drill.Request {
		return drill.Request{Verb: "delete", Resource: "pods", Agent: agent, Name: name, Begun: at(second), Code: code}
	}
	creates := func(name string, second int) drill.Request {
		return drill.Request{Verb: "create", Resource: "pods", Name: name, Begun: at(second), Code: http.StatusCreated}
	}
	got := aftermathOf([]drill.Request{
		deletes(benchAgent, "a-1-3", 1, http.StatusOK),
		creates("a-1-3", 2), // in the life that is about to end
		{Verb: "delete", Resource: "statefulsets", Agent: "lockstep/v1", Name: "a-1", Begun: at(3), Code: http.StatusOK},
		deletes("lockstep/v1", "a-1-1", 4, http.StatusOK),
		deletes("lockstep/v1", "a-1", 5, http.StatusOK),
		deletes("lockstep/v1", "a-1", 6, http.StatusConflict),
		creates("a-1-2", 6), // asked for before its StatefulSet was gone
		creates("a-1", 7),
		{Verb: "patch", Resource: "statefulsets", Agent: "lockstep/v1", Name: "a-1", Begun: at(8), Code: http.StatusCreated},
		creates("a-1-1", 8),
		creates("a-2-1", 9), deletes("kwok", "a-2", 9, http.StatusOK), // of a group that was not hit
	}, 1, func(group int) bool { return group == 1 })
	want := aftermath{hit: 1, leaders: 1, made: 2, most: 2, others: 2, late: 2}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTheStepsOfAnAnswerAreTimed(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1_000_000 + ms)) }
	request := func(verb, resource, subresource, agent, name string, ms int) drill.Request {
		return drill.Request{Verb: verb, Resource: resource, Subresource: subresource, Agent: agent, Name: name, Begun: at(ms), Done: at(ms + 1), Code: http.StatusOK}
	}
	got := stepsOf([]drill.Request{
		request("patch", "leaderworkersets", "status", "lockstep/v1", "a", 0), // before anybody was killed
		request("delete", "pods", "", benchAgent, "a-1-3", 9),
		request("patch", "leaderworkersets", "status", "lockstep/v1", "a", 20),
		request("patch", "leaderworkersets", "status", "lockstep/v1", "a", 25), // counts
		request("delete", "statefulsets", "", "lockstep/v1", "a-1", 30),
		request("delete", "pods", "", "lockstep/v1", "a-1-1", 40),
		request("delete", "pods", "", "kwok", "a-1", 41), // the end of it
		request("delete", "pods", "", "lockstep/v1", "a-1", 50),
		request("delete", "pods", "", "lockstep/v1", "a-1", 60),
		request("delete", "pods", "", benchAgent, "a-2-3", 69),
		request("delete", "pods", "", "lockstep/v1", "a-2", 90), // beside its StatefulSet
		request("delete", "statefulsets", "", "lockstep/v1", "a-2", 91),
	})
	want := map[string][]time.Duration{
		"record": {10 * time.Millisecond}, "statefulset": {20 * time.Millisecond, 21 * time.Millisecond}, "leader": {20 * time.Millisecond, 40 * time.Millisecond},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAMedianIsTakenOfEachFigure(t *testing.T) {
	runs := []figures{{{"a", 1}, {"b", 9}}, {{"a", 3}, {"b", 7}}, {{"a", 2}, {"b", 8}}}
	if diff := cmp.Diff(figures{{"a", 2}, {"b", 8}}, medians(runs), cmp.AllowUnexported(figure{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestTheTablePutsFiguresSideBySide(t *testing.T) {
	r := newReport(settings{})
	r.add(figures{{"create-500x2.up.seconds", 1}, {"create-500x2.up.ratio", 2}, {"create-500x2.down.seconds", 3}, {"create-500x2.rss-mib", 4}, {"kill-one.seconds", 5}})
	rows, others := r.table("create-500x2")
	if len(rows) != 2 || rows[0].cells[".ratio"] != 2 || rows[1].cells[".seconds"] != 3 {
		t.Errorf("got %+v", rows)
	}
	if len(others) != 1 || others[0].name != "create-500x2.rss-mib" {
		t.Errorf("got %+v", others)
	}
}

// newCensus counts two groups of two.
func newCensus() *stage {
	n := &census{full: 2, wake: make(chan struct{}), pods: map[types.UID]pod{}, readyIn: map[string]int{}, stss: map[string]bool{}, sets: map[string]*lwsv1.LeaderWorkerSet{}}
	return &stage{load: floor(2, 2), census: n}
}

func seen(uid types.UID, name, group string, ready bool) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: name, Labels: map[string]string{groupLabel: group}}}
	pod.Spec.Containers = []corev1.Container{{Image: imageA}}
	if ready {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return pod
}

func TestTheCensusCountsGroups(t *testing.T) {
	s := newCensus()
	for _, p := range []*corev1.Pod{
		seen("0", "a-0", "a", true), seen("0-1", "a-0-1", "a-0", true), seen("1", "a-1", "a", true), seen("1-1", "a-1-1", "a-1", false),
	} {
		s.see(p, true)
	}
	if s.whole != 1 || s.allReady() {
		t.Errorf("%d groups are whole", s.whole)
	}
	s.see(seen("1-1", "a-1-1", "a-1", true), true)
	s.fewest = s.whole
	s.see(seen("0", "a-0", "a", true), true) // a change that means nothing
	if !s.allReady() || s.fewest != 2 {
		t.Errorf("%d groups are whole, were %d", s.whole, s.fewest)
	}
	s.see(seen("0", "a-0", "a", true), false)
	s.see(seen("0'", "a-0", "a", true), true)
	if !s.allReady() || s.fewest != 1 || s.created != 5 {
		t.Errorf("%d groups are whole, were %d; %d pods were created", s.whole, s.fewest, s.created)
	}
}

func TestBareStatefulSetsAreCompleteWhenTheirStatusSaysSo(t *testing.T) {
	s := newCensus()
	for i, uid := range []types.UID{"0", "0-1", "1", "1-1"} {
		s.see(seen(uid, "a-"+string(uid), []string{"a", "a-0", "a", "a-1"}[i], true), true)
	}
	for _, sts := range s.statefulSets() {
		s.see(sts, true)
	}
	if s.complete() {
		t.Error("without any status")
	}
	for _, sts := range s.statefulSets() {
		sts.Status = appsv1.StatefulSetStatus{AvailableReplicas: *sts.Spec.Replicas, UpdatedReplicas: *sts.Spec.Replicas}
		s.see(sts, true)
	}
	if !s.complete() {
		t.Errorf("%d are not ready", s.stsLeft)
	}
}
