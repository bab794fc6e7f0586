package report

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

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
	standing := &lws.Standing{Accelerators: map[corev1.ResourceName]resource.Quantity{"nvidia.com/gpu": resource.MustParse("16")}}
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
	}
	s.stands("a", standing, 10)
	want := map[string]float64{
		"set_groups w ns ready": 3, "set_groups w ns unready": 1,
		"set_condition_seconds Progressing w ns GroupsProgressing": 70,
		"set_rollout_groups_left w ns":                             3,
		"set_rollout_budget_used w ns":                             1,
		"set_rollout_budget_allowed w ns":                          2,
		"set_accelerators_idle w ns nvidia.com/gpu unready":        16,
	}
	if diff := cmp.Diff(want, fakeapi.Metrics(t, s.sets)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	s.stands("a", nil, 0)
	if diff := cmp.Diff(map[string]float64{}, fakeapi.Metrics(t, s.sets)); diff != "" {
		t.Errorf("after the set is gone (-want +got)\n%s", diff)
	}
}

func TestSetsThatAreLeftAloneAreCounted(t *testing.T) {
	s := newStage()
	count := func(waits ...lws.Wait) float64 {
		s.Stands(setKey, &lwsv1.LeaderWorkerSet{}, lws.Plan{Waits: waits})
		return fakeapi.Metrics(t, s.sets)["sets_unsupported"]
	}
	alone := lws.Wait{Reason: action.Reason{Code: lws.CodeUnsupported}}
	if once, again, after := count(alone), count(alone), count(); once != 1 || again != 1 || after != 0 {
		t.Errorf("%v, then %v, and %v once it is served", once, again, after)
	}
}

func TestPodsBeyondNeed(t *testing.T) {
	group := func(index int, leader types.UID, pods int32) lws.UnstartedGroup {
		return lws.UnstartedGroup{Index: index, Leader: leader, Pods: pods}
	}
	for name, tt := range map[string]struct {
		wanted []int32
		groups [][]lws.UnstartedGroup
		want   int32
	}{
		"started":                  {[]int32{2, 2}, [][]lws.UnstartedGroup{{group(0, "a", 8)}, nil}, 0},
		"replaced":                 {[]int32{2, 2}, [][]lws.UnstartedGroup{{group(0, "a", 8)}, {group(0, "b", 1)}}, 8},
		"replaced while it comes":  {[]int32{2, 2, 2}, [][]lws.UnstartedGroup{{group(0, "a", 1)}, {group(0, "a", 5)}, {group(0, "b", 1)}}, 5},
		"its workers went first":   {[]int32{2, 2, 2}, [][]lws.UnstartedGroup{{group(0, "a", 8)}, {group(0, "a", 2)}, {group(0, "b", 1)}}, 8},
		"scaled away":              {[]int32{2, 1}, [][]lws.UnstartedGroup{{group(1, "a", 3)}, nil}, 3},
		"a surge group that stays": {[]int32{1, 1}, [][]lws.UnstartedGroup{{group(1, "a", 3)}, {group(1, "a", 3)}}, 0},
		"twice":                    {[]int32{1, 1, 1}, [][]lws.UnstartedGroup{{group(0, "a", 2)}, {group(0, "b", 3)}, {group(0, "c", 1)}}, 5},
	} {
		s := newStage()
		for i, groups := range tt.groups {
			standing := inStates(map[lws.GroupState]int32{lws.GroupReady: tt.wanted[i]})
			standing.Unstarted = groups
			s.stands("a", standing, 1)
		}
		if got := s.sets.known[setKey].beyond; got != tt.want {
			t.Errorf("%s: %d pods beyond need, want %d", name, got, tt.want)
		}
	}
}

func TestClassesOfExitCodes(t *testing.T) {
	for code, want := range map[int32]string{0: "0", 1: "1-127", 127: "1-127", 137: "137", 128: "128-255", 143: "128-255", 255: "128-255", -1: "128-255"} {
		if got := exitClass(&code); got != want {
			t.Errorf("%d is %s, want %s", code, got, want)
		}
	}
	if got := exitClass(nil); got != "none" {
		t.Errorf("without a code: %s", got)
	}
}

func TestFailedWatchesAreCounted(t *testing.T) {
	for _, err := range []error{io.EOF, errors.New("forbidden")} {
		WatchFailed(t.Context(), cache.NewReflector(nil, &corev1.Pod{}, nil, 0), err)
	}
	if diff := cmp.Diff(map[string]float64{"watch_errors_total *v1.Pod": 1}, fakeapi.Metrics(t, WatchMetrics()...)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
