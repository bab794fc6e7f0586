package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clientreference "k8s.io/client-go/tools/reference"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// recorder keeps the events that it records.
type recorder struct {
	told      []string
	regarding []runtime.Object
}

func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, doing, note string, args ...any) {
	about := ""
	if reference, ok := related.(*corev1.ObjectReference); ok {
		about = " about " + reference.APIVersion + " " + reference.Kind + " " + reference.Name
	}
	r.told = append(r.told, kind+" "+reason+"/"+doing+" "+fmt.Sprintf(note, args...)+about)
	r.regarding = append(r.regarding, regarding)
}

func TestResultsOfActions(t *testing.T) {
	leader := identity.Ref{Kind: identity.KindPod, Name: "w-0", UID: "u"}
	revision := identity.Ref{Kind: identity.KindControllerRevision, Name: "w-x-1", UID: "r"}
	telling := action.Telling{
		Done: []action.Event{
			{Reason: "Gone", Action: "Delete", Note: "100% gone", Related: &leader},
			{Warning: true, Reason: "Loss", Action: "Delete", Note: "lost", Related: &revision},
		},
		Refused: &action.Event{Warning: true, Reason: "FailedDelete", Action: "Delete", Note: "Failed to delete"},
	}
	for name, tt := range map[string]struct {
		telling action.Telling
		err     error
		want    []string
	}{
		"done":            {telling, nil, []string{"Normal Gone/Delete 100% gone about v1 Pod w-0", "Warning Loss/Delete lost about apps/v1 ControllerRevision w-x-1"}},
		"refused":         {telling, errors.New("no"), []string{"Warning FailedDelete/Delete Failed to delete: no"}},
		"without events":  {action.Telling{}, errors.New("no"), nil},
		"stale":           {telling, fmt.Errorf("wrapped: %w", apply.ErrStale), nil},
		"taken":           {telling, &apply.TakenError{}, nil},
		"the process end": {telling, &url.Error{Op: "Post", URL: "https://h", Err: context.Canceled}, nil},
	} {
		r := &recorder{}
		New(r).Tell(t.Context(), &corev1.Pod{}, action.Delete{Object: leader, Tell: tt.telling}, tt.err)
		expect.Equalf(t, tt.want, r.told, "%s", name)
	}
}

// An event may be about another object than the plan.
func TestEventsOnAPod(t *testing.T) {
	r := &recorder{}
	leader := identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "w-0", UID: "u"}
	New(r).Wait(&lwsv1.LeaderWorkerSet{}, "w", lws.Wait{Reason: action.Reason{Sentence: "s"}, Tell: &action.Event{Reason: "R", Action: "Wait", On: &leader}})
	want := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "w-0", UID: "u"}
	expect.Equal(t, []runtime.Object{want}, r.regarding)
}

// failures are told with a write of a status.
var failures = action.WriteStatus{Tell: action.Telling{Failures: []action.Failure{{Code: "X"}, {Code: "X"}, {Code: "X", ExitCode: new(int32(137))}, {Code: "Y", ExitCode: new(int32(1))}}}}

// restarted compares the counter of restarts with the failures of some sets.
func restarted(t *testing.T, when string, keys ...types.NamespacedName) {
	t.Helper()
	want := map[string]float64{}
	for _, key := range keys {
		of := " " + key.Name + " " + key.Namespace
		want["group_restarts_total none X"+of], want["group_restarts_total 137 X"+of], want["group_restarts_total 1-127 Y"+of] = 2, 1, 1
	}
	expect.Equalf(t, want, fakeapi.Metrics(t, restarts), "%s", when)
}

func named(key types.NamespacedName, uid types.UID) *lwsv1.LeaderWorkerSet {
	return &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid}}
}

func TestFailuresAreCountedOnceTheyAreWritten(t *testing.T) {
	t.Cleanup(restarts.Reset)
	key := types.NamespacedName{Namespace: "ns", Name: "w"}
	for _, err := range []error{errors.New("boom"), nil} {
		New(&recorder{}).Tell(t.Context(), named(key, "1"), failures, err)
	}
	restarted(t, "one refused write and one that is done", key)
}

func TestFailuresOfADeletedSetAreStillServed(t *testing.T) {
	t.Cleanup(restarts.Reset)
	reporter := New(&recorder{})
	tell := func(key types.NamespacedName, uid types.UID) {
		reporter.Tell(t.Context(), named(key, uid), failures, nil)
	}
	stands := func(key types.NamespacedName, uid types.UID, standing *lws.Standing) {
		reporter.Stands(key, named(key, uid), lws.Plan{Standing: standing})
	}
	w, namesake, other := types.NamespacedName{Namespace: "ns", Name: "w"}, types.NamespacedName{Namespace: "elsewhere", Name: "w"}, types.NamespacedName{Namespace: "ns", Name: "other"}
	for _, key := range []types.NamespacedName{w, namesake, other} {
		tell(key, "1") // a group of the set may be reconciled before the set
		stands(key, "1", &lws.Standing{})
		stands(key, "1", &lws.Standing{})
	}
	restarted(t, "three sets", w, namesake, other)
	stands(w, "1", nil)
	restarted(t, "one set is being deleted", namesake, other)
	tell(w, "1")
	stands(w, "1", nil)
	restarted(t, "a failure was written during the deletion", namesake, other)
	stands(other, "2", &lws.Standing{})
	restarted(t, "a set was deleted and created again between two reads", namesake)
	tell(other, "2")
	restarted(t, "its next incarnation fails", namesake, other)
}

// Two waits of one read are not reported with every read.
func TestWaitsAreReportedOnce(t *testing.T) {
	r := &recorder{}
	reporter := New(r)
	for _, step := range []struct{ waiting, sentences string }{
		{"a", "one two"}, {"a", "one two"}, {"b", "one"}, {"a", "three"}, {"a", "three"}, {"b", "one"},
	} {
		waits := []lws.Wait{{Reason: action.Reason{Sentence: "silent"}}}
		for sentence := range strings.FieldsSeq(step.sentences) {
			waits = append(waits, lws.Wait{Reason: action.Reason{Sentence: sentence}, Tell: &action.Event{Reason: "R", Action: "Wait", Note: step.waiting + sentence}})
		}
		reporter.Wait(&corev1.Pod{}, types.UID(step.waiting), waits...)
	}
	expect.Equalf(t, "Normal R/Wait aone,Normal R/Wait atwo,Normal R/Wait bone,Normal R/Wait athree", strings.Join(r.told, ","), "what is told")
}

// An event is about a set and no field of it. The recorder merges events that differ in their notes alone: each step of a
// rollout writes another version of the StatefulSet.
func TestStepsOfARolloutAreToldApartWithoutAField(t *testing.T) {
	r := &recorder{}
	reporter := New(r)
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "u", ResourceVersion: "1"}}
	for _, version := range []string{"7", "8", "8"} {
		write := action.Apply{
			Onto: identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "w", UID: "s", ResourceVersion: version},
			Tell: action.Telling{
				Done:    []action.Event{{Reason: "GroupsUpdating", Action: "Update", Note: "Updating replica " + version}},
				Refused: &action.Event{Warning: true, Reason: "FailedUpdate", Action: "Update", Note: "Failed"},
			},
		}
		reporter.Tell(t.Context(), set, write, nil)
		reporter.Tell(t.Context(), set, write, errors.New("no"))
	}
	status := action.WriteStatus{Object: identity.RefOf(identity.KindLeaderWorkerSet, set), Tell: action.Telling{Done: []action.Event{{Reason: "GroupsUpdating", Action: "Update"}}}}
	reporter.Tell(t.Context(), set, status, nil)
	reporter.Wait(set, "u", lws.Wait{Reason: action.Reason{Sentence: "s"}, Tell: &action.Event{Reason: "R", Action: "Wait", Note: "n"}})
	var versions []string
	for i, regarding := range r.regarding {
		about, err := clientreference.GetReference(scheme(t), regarding)
		if err != nil || about.FieldPath != "" || about.UID != "u" || about.Kind != "LeaderWorkerSet" || about.Name != "w" {
			t.Errorf("%s is about %+v, %v", r.told[i], about, err)
		}
		versions = append(versions, about.ResourceVersion)
	}
	note := lws.Fingerprint("Failed: no")
	expect.Equalf(t, []string{"7", "7" + note, "8", "8" + note, "8", "8" + note, "1", "1"}, versions, "versions")
}

// The recorder merges events about one version: a write that is refused for each new version of its owner is told once
// for each reason.
func TestARefusalIsToldOnceForAllVersionsOfItsOwner(t *testing.T) {
	r := &recorder{}
	refused := action.Telling{Refused: &action.Event{Warning: true, Reason: "FailedCreate", Action: "Create", Note: "Failed"}}
	for version, why := range map[string]string{"1": "no", "2": "no", "3": "never"} {
		of := metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "u", ResourceVersion: version}
		leader := action.Apply{Onto: identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "w"}, Tell: refused}
		New(r).Tell(t.Context(), &lwsv1.LeaderWorkerSet{ObjectMeta: of}, leader, errors.New(why))
		workers := action.Create{Kind: identity.KindStatefulSet, Object: &appsv1.StatefulSet{}, Tell: refused}
		New(r).Tell(t.Context(), &corev1.Pod{ObjectMeta: of}, workers, errors.New(why))
	}
	told := map[string]int{}
	for _, regarding := range r.regarding {
		told[fmt.Sprintf("%T %s", regarding, regarding.(client.Object).GetResourceVersion())]++
	}
	expect.Equalf(t, 6, len(r.regarding), "events")
	expect.Equalf(t, 4, len(told), "kinds of events: %v", told)
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	expect.OK(t, lwsv1.AddToScheme(scheme))
	return scheme
}

// A note is cut to the limit in bytes, between characters, and begins as it did.
func TestNotesFitTheEventsAPI(t *testing.T) {
	for _, short := range []string{"short", strings.Repeat("x", noteLimit)} {
		expect.Equal(t, short, clipped(short))
	}
	for _, unit := range []string{"x", "é", "…", "😀", "\xffa"} {
		for shift := range 4 {
			note := strings.Repeat("a", shift) + strings.Repeat(unit, noteLimit+1)
			got := clipped(note)
			rest, cut := strings.CutSuffix(got, "…")
			if len(got) > noteLimit || !utf8.ValidString(got) || !cut || !strings.HasPrefix(strings.ToValidUTF8(note, "\uFFFD"), rest) {
				t.Errorf("%d bytes of %q: %q", len(got), unit, got)
			}
		}
	}
}

// stage is a reporter of one set, and a clock.
type stage struct {
	*Reporter
	now time.Time
}

var setKey = types.NamespacedName{Namespace: "ns", Name: "w"}

func newStage() *stage {
	s := &stage{Reporter: New(&recorder{}), now: time.Unix(1000, 0)}
	s.sets.now = func() time.Time { return s.now }
	return s
}

// stands reports a standing of an incarnation of the set, and lets some seconds pass.
func (s *stage) stands(uid types.UID, standing *lws.Standing, seconds int) {
	s.Stands(setKey, &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{UID: uid}}, lws.Plan{Standing: standing})
	s.now = s.now.Add(time.Duration(seconds) * time.Second)
}

func inStates(of map[lws.GroupState]int32) *lws.Standing {
	standing := &lws.Standing{Effective: fakeapi.Set("w", 1, 1)}
	standing.Effective.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = fakeapi.Resources("nvidia.com/gpu", "16")
	for state, n := range of {
		standing.States[state] = n
	}
	return standing
}

func TestMetricsOfASet(t *testing.T) {
	s := newStage()
	standing := inStates(map[lws.GroupState]int32{lws.GroupReady: 3, lws.GroupUnready: 1})
	standing.Target, standing.TargetUpdated, standing.Down, standing.Budget = 4, 1, 1, 2
	since := metav1.NewTime(s.now.Add(-time.Minute))
	standing.Conditions = []metav1.Condition{
		{Type: "Progressing", Status: metav1.ConditionTrue, Reason: "GroupsProgressing", LastTransitionTime: since},
		{Type: "Available", Status: metav1.ConditionFalse, Reason: "AllGroupsReady", LastTransitionTime: since},
		{Type: "UpdateInProgress", Status: metav1.ConditionTrue, Reason: "GroupsUpdating", LastTransitionTime: since},
	}
	s.stands("a", standing, 10)
	want := map[string]float64{
		"set_groups w ns ready": 3, "set_groups w ns unready": 1,
		"set_condition_seconds Progressing w ns GroupsProgressing":   70,
		"set_condition_seconds UpdateInProgress w ns GroupsUpdating": 70,
		"set_rollout_started_timestamp_seconds w ns":                 940,
		"set_rollout_groups_left w ns":                               3,
		"set_rollout_budget_used w ns":                               1,
		"set_rollout_budget_allowed w ns":                            2,
		"set_accelerators_idle w ns nvidia.com/gpu unready":          16,
		"set_accelerators_requested w ns nvidia.com/gpu":             64,
		"set_accelerators_ready w ns nvidia.com/gpu":                 48,
	}
	expect.Equal(t, want, fakeapi.Metrics(t, s.sets))
	s.stands("a", nil, 0)
	expect.Equalf(t, map[string]float64{}, fakeapi.Metrics(t, s.sets), "after the set is gone")
}

// TestGroupsAreTimedOnce: from the creation of a leader, and from the failure of the group before it.
func TestGroupsAreTimedOnce(t *testing.T) {
	created := time.Unix(1000, 0)
	led := func(leader types.UID, isReady bool) lws.LedGroup {
		return lws.LedGroup{Leader: leader, Created: created, IsReady: isReady}
	}
	recovers := func(isReady bool) lws.LedGroup {
		g := led("b", isReady)
		g.FailedAt = created.Add(-time.Minute)
		return g
	}
	returns := func(leader types.UID, isReady bool) lws.LedGroup {
		g := recovers(isReady)
		g.Leader = leader
		return g
	}
	mayHaveRun := func(isReady bool) lws.LedGroup { g := led("a", isReady); g.MayHaveRun = true; return g }
	type steps [][]lws.LedGroup
	for name, tt := range map[string]struct {
		steps            steps
		ready, recovered uint64
	}{
		"a group starts":    {steps{{}, {led("a", false)}, {led("a", true)}}, 1, 0},
		"it is ready again": {steps{{}, {led("a", true)}, {led("a", false)}, {led("a", true)}}, 1, 0},
		"a group recovers":  {steps{{led("a", true)}, {recovers(false)}, {recovers(true)}, {recovers(true)}}, 1, 1},
		"an earlier failure is back after an undone rollout": {steps{
			{led("a", true)}, {recovers(false)}, {recovers(true)}, {led("c", false)}, {led("c", true)}, {returns("d", false)}, {returns("d", true)}}, 3, 1},
		"it was ready before this process": {steps{{led("a", true)}, {led("a", false)}, {led("a", true)}}, 0, 0},
		"it may have been":                 {steps{{mayHaveRun(false)}, {mayHaveRun(true)}}, 0, 0},
		"it had not run":                   {steps{{led("a", false)}, {led("a", true)}}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage()
			for _, groups := range tt.steps {
				s.stands("u", &lws.Standing{Led: groups}, 20)
			}
			expect.Equalf(t, tt.ready, observed(t, readyAfter), "ready")
			expect.Equalf(t, tt.recovered, observed(t, recoveredAfter), "recovered")
			s.stands("u", nil, 0)
			expect.Equalf(t, uint64(0), observed(t, readyAfter)+observed(t, recoveredAfter), "after the set is gone")
		})
	}
}

// observed is how often a histogram was.
func observed(t *testing.T, h *prometheus.HistogramVec) (sum uint64) {
	for m := range collected(h) {
		var written dto.Metric
		expect.OK(t, m.Write(&written))
		sum += written.Histogram.GetSampleCount()
	}
	return sum
}

func TestSetsThatAreLeftAloneAreCounted(t *testing.T) {
	s := newStage()
	count := func(waits ...lws.Wait) float64 {
		s.Stands(setKey, &lwsv1.LeaderWorkerSet{}, lws.Plan{Plan: action.Plan{Waits: waits}})
		return fakeapi.Metrics(t, s.sets)["sets_unsupported"]
	}
	alone := lws.Wait{Reason: action.Reason{Code: lws.CodeUnsupported}}
	got := []float64{count(alone), count(alone), count()}
	expect.Equalf(t, []float64{1, 1, 0}, got, "alone, again, and once it is served")
}

func TestPodsBeyondNeed(t *testing.T) {
	group := func(index int, leader types.UID, pods int32) lws.LedGroup {
		return lws.LedGroup{Index: index, Leader: leader, Pods: pods}
	}
	for name, tt := range map[string]struct {
		wanted []int32
		groups [][]lws.LedGroup
		want   int32
	}{
		"started":                  {[]int32{2, 2}, [][]lws.LedGroup{{group(0, "a", 8)}, nil}, 0},
		"replaced":                 {[]int32{2, 2}, [][]lws.LedGroup{{group(0, "a", 8)}, {group(0, "b", 1)}}, 8},
		"replaced while it comes":  {[]int32{2, 2, 2}, [][]lws.LedGroup{{group(0, "a", 1)}, {group(0, "a", 5)}, {group(0, "b", 1)}}, 5},
		"its workers went first":   {[]int32{2, 2, 2}, [][]lws.LedGroup{{group(0, "a", 8)}, {group(0, "a", 2)}, {group(0, "b", 1)}}, 8},
		"scaled away":              {[]int32{2, 1}, [][]lws.LedGroup{{group(1, "a", 3)}, nil}, 3},
		"a surge group that stays": {[]int32{1, 1}, [][]lws.LedGroup{{group(1, "a", 3)}, {group(1, "a", 3)}}, 0},
		"twice":                    {[]int32{1, 1, 1}, [][]lws.LedGroup{{group(0, "a", 2)}, {group(0, "b", 3)}, {group(0, "c", 1)}}, 5},
	} {
		s := newStage()
		for i, groups := range tt.groups {
			standing := inStates(map[lws.GroupState]int32{lws.GroupReady: tt.wanted[i]})
			standing.Led = groups
			s.stands("a", standing, 1)
		}
		expect.Equalf(t, tt.want, s.sets.known[setKey].beyond, "%s: pods beyond need", name)
	}
}

func TestClassesOfExitCodes(t *testing.T) {
	for code, want := range map[int32]string{0: "0", 1: "1-127", 127: "1-127", 137: "137", 128: "128-255", 143: "128-255", 255: "128-255", -1: "128-255"} {
		expect.Equalf(t, want, exitClass(&code), "%d", code)
	}
	expect.Equalf(t, "none", exitClass(nil), "without a code")
}

func TestFailedWatchesAreCounted(t *testing.T) {
	for _, err := range []error{io.EOF, errors.New("forbidden")} {
		WatchFailed(t.Context(), cache.NewReflector(nil, &corev1.Pod{}, nil, 0), err)
	}
	expect.Equal(t, map[string]float64{"watch_errors_total *v1.Pod": 1}, fakeapi.Metrics(t, WatchMetrics()...))
}
