package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

func TestFiguresAreComparedWithTargets(t *testing.T) {
	b := &budget{Figures: map[string]allowance{"most": {Target: 10}, "least": {Target: 10, Least: true}}}
	for _, tt := range []struct {
		name   string
		value  float64
		missed bool
	}{
		{"most", 10, false}, {"most", 11, true}, {"least", 10, false}, {"least", 9, true}, {"other", 99, false},
	} {
		missed := b.print(io.Discard, figures{{tt.name, tt.value}})
		expect.That(t, (missed != nil) == tt.missed && codeOf(missed) == map[bool]int{true: 1}[tt.missed],
			"%s of %v: %v", tt.name, tt.value, missed)
	}
	invalid := fmt.Errorf("idle: %w: nothing was touched", errInvalid)
	expect.Equalf(t, 2, codeOf(errors.Join(b.judge(figure{"most", 11}), invalid)), "the code of an invalid run")
}

func TestBudgetNamesScenarios(t *testing.T) {
	b := expect.Value(readBudget("budget.yaml"))(t)
	known := map[string]bool{"event": true}
	for _, one := range scenarios {
		known[one.name] = true
	}
	for name := range b.Figures {
		if scenario, _, ok := strings.Cut(name, "."); !ok || !known[scenario] {
			t.Errorf("%s names no scenario", name)
		}
	}
}

func TestAftermathDistinguishesIncarnations(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	deletes := func(agent, name string, second, code int) drill.Request {
		return drill.Request{Verb: "delete", Resource: "pods", Agent: agent, Name: name, Begun: at(second), Code: code}
	}
	creates := func(name string, second int) drill.Request {
		return drill.Request{Verb: "create", Resource: "pods", Name: name, Begun: at(second), Code: http.StatusCreated}
	}
	got := aftermathOf([]drill.Request{
		deletes(benchAgent, "a-1-3", 1, http.StatusOK),
		creates("a-1-3", 2), // in the incarnation that ends next
		{Verb: "delete", Resource: "statefulsets", Agent: "lockstep/v1", Name: "a-1", Begun: at(3), Code: http.StatusOK},
		deletes("lockstep/v1", "a-1-1", 4, http.StatusOK),
		deletes("lockstep/v1", "a-1", 5, http.StatusOK),
		deletes("lockstep/v1", "a-1", 6, http.StatusConflict),
		creates("a-1-2", 6), // begun before its StatefulSet was gone
		creates("a-1", 7),
		{Verb: "patch", Resource: "statefulsets", Agent: "lockstep/v1", Name: "a-1", Begun: at(8), Code: http.StatusCreated},
		creates("a-1-1", 8),
		creates("a-2-1", 9), deletes("kwok", "a-2", 9, http.StatusOK), // in a group that lost no worker
	}, 1, func(group int) bool { return group == 1 })
	want := aftermath{hit: 1, leaders: 1, made: 2, most: 2, others: 2, late: 2}
	expect.That(t, got == want, "got %+v, want %+v", got, want)
}

func TestAnswersAreDeletionsOfLeaders(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1_000_000 + ms)) }
	deletes := func(agent, name string, ms int) drill.Request {
		return drill.Request{Agent: agent, Name: name, Begun: at(ms), Done: at(ms + 1)}
	}
	got := answersOf([]drill.Request{
		deletes(benchAgent, "a-1-3", 9), deletes("lockstep/v1", "a-1-1", 40),
		deletes("kwok", "a-1", 41), // the removal of the leader by its kubelet
		deletes("lockstep/v1", "a-1", 50), deletes("lockstep/v1", "a-1", 60),
		deletes(benchAgent, "a-2-3", 69), deletes("lockstep/v1", "a-2", 90),
	})
	expect.Equal(t, []time.Duration{20 * time.Millisecond, 40 * time.Millisecond}, got)
}

func TestMedianOfEachFigure(t *testing.T) {
	runs := []figures{{{"a", 1}, {"b", 9}}, {{"a", 3}, {"b", 7}}, {{"a", 2}, {"b", 8}}}
	diff := cmp.Diff(figures{{"a", 2}, {"b", 8}}, medians(runs), cmp.AllowUnexported(figure{}))
	expect.That(t, diff == "", "(-want +got)\n%s", diff)
}

func seen(uid types.UID, name, group string, ready bool) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: name, Labels: map[string]string{groupLabel: group}}}
	pod.Spec.Containers = []corev1.Container{{Image: imageA}}
	if ready {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return pod
}

func TestCensusCountsGroups(t *testing.T) {
	s := &stage{place: &place{}, load: floor(2, 2), census: newCensus(2, 2)}
	for _, p := range []*corev1.Pod{
		seen("0", "a-0", "a", true), seen("0-1", "a-0-1", "a-0", true), seen("1", "a-1", "a", true), seen("1-1", "a-1-1", "a-1", false),
	} {
		s.see(p, true)
	}
	expect.That(t, s.whole == 1 && !s.allReady(), "%d groups are whole", s.whole)
	s.see(seen("1-1", "a-1-1", "a-1", true), true)
	s.fewest = s.whole
	s.see(seen("0", "a-0", "a", true), true) // an update that changes nothing
	expect.That(t, s.allReady() && s.fewest == 2, "%d groups are whole, at least %d were", s.whole, s.fewest)
	s.see(seen("0", "a-0", "a", true), false)
	s.see(seen("0'", "a-0", "a", true), true)
	expect.That(t, s.allReady() && s.fewest == 1 && s.created == 5,
		"%d groups are whole, at least %d were; %d pods were created", s.whole, s.fewest, s.created)
}

func TestBareStatefulSetsAreCompleteByStatus(t *testing.T) {
	s := &stage{place: &place{}, load: floor(2, 2), census: newCensus(2, 2)}
	for i, uid := range []types.UID{"0", "0-1", "1", "1-1"} {
		s.see(seen(uid, "a-"+string(uid), []string{"a", "a-0", "a", "a-1"}[i], true), true)
	}
	for _, sts := range s.statefulSets() {
		s.see(sts, true)
	}
	expect.That(t, !s.complete(), "complete without a status")
	for _, sts := range s.statefulSets() {
		sts.Status = appsv1.StatefulSetStatus{AvailableReplicas: *sts.Spec.Replicas, UpdatedReplicas: *sts.Spec.Replicas}
		s.see(sts, true)
	}
	expect.That(t, s.complete(), "ready: %v", s.stss)
}

func TestReadsPodsCountsLists(t *testing.T) {
	for query, want := range map[string][2]bool{
		"": {true, false}, "?limit=2000": {true, false}, "?limit=10": {true, false},
		"?continue=abc&limit=2000": {false, false}, "?limit=1": {false, true},
	} {
		all, one := readsPods(drill.Request{Verb: "list", Resource: "pods", URI: "/api/v1/namespaces/a/pods" + query})
		expect.Equalf(t, want, [2]bool{all, one}, "%q", query)
	}
}

func TestLagIsFromDeletionOfPodToLastChangeOfPVC(t *testing.T) {
	at := func(second float64) time.Time { return time.Unix(1000, int64(second*1e9)) }
	wrote := func(name string, done float64, code int) drill.Request {
		return drill.Request{Verb: "patch", Resource: "persistentvolumeclaims", Name: name, Begun: at(done - 0.1), Done: at(done), Code: code}
	}
	deleted := func(name string, done float64) drill.Request {
		return drill.Request{Verb: "delete", Resource: "pods", Name: name, Done: at(done), Code: http.StatusOK}
	}
	requests := []drill.Request{
		wrote("x-0", 0.5, http.StatusOK), deleted("user-of-x-0", 1), deleted("user-of-x-1", 2),
		wrote("x-0", 1.2, http.StatusOK), wrote("x-0", 1.5, http.StatusOK), wrote("x-0", 1.7, http.StatusConflict), wrote("x-1", 2.2, http.StatusOK),
	}
	lags, err := lagsOf(requests, "x", 2)
	diff := cmp.Diff([]time.Duration{200 * time.Millisecond, 500 * time.Millisecond}, lags)
	expect.That(t, diff == "" && err == nil, "%v (-want +got)\n%s", err, diff)
	if _, err := lagsOf(requests, "x", 3); !errors.Is(err, errInvalid) {
		t.Errorf("a PVC without a release: %v", err)
	}
	expect.Equalf(t, 10, (freed{begun: at(0), last: at(6), claims: 60}).rate(), "PVCs a second")
}

// One slow round does not change the result.
func TestAddedAdmissionTimeIsAMedianOfRounds(t *testing.T) {
	const ms = time.Millisecond
	steady := sample{with: []time.Duration{3 * ms, 9 * ms}, without: []time.Duration{2 * ms, 7 * ms}}
	stalled := sample{with: []time.Duration{3 * ms, 900 * ms}, without: []time.Duration{2 * ms, 7 * ms}}
	var f figures
	tellAdmission(&f, "a", []sample{steady, stalled, steady})
	want := figures{{"a-adds-ms-p50", 1}, {"a-without-ms-p50", 2}, {"a-adds-ms-p99", 2}, {"a-without-ms-p99", 7}}
	diff := cmp.Diff(want, f, cmp.AllowUnexported(figure{}))
	expect.That(t, diff == "", "(-want +got)\n%s", diff)
}
