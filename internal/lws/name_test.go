package lws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/test/fakeapi"
)

// No webhook sees /scale. A set that is scaled beyond the limit of its name is Stalled, with the number.
func TestScaleThatNoNameHoldsStallsTheSet(t *testing.T) {
	for name, tt := range map[string]struct {
		set   Set
		limit int // 0: it fits
	}{
		"ten groups":           {fakeapi.Set(strings.Repeat("a", 50), 10, 2), 0},
		"eleven groups":        {fakeapi.Set(strings.Repeat("a", 50), 11, 2), 49},
		"no workers":           {fakeapi.Set(strings.Repeat("a", 52), 11, 1), 0},
		"no workers, too long": {fakeapi.Set(strings.Repeat("a", 53), 1, 1), 52},
	} {
		set := tt.set
		set.Status.ObservedGeneration = -1
		write := decidedStatus(t, lws.SetSnapshot{Now: time.Now(), Set: set, HistoryRead: true})
		stalled := condition(write, "Stalled")
		if tt.limit == 0 {
			if stalled.Status == metav1.ConditionTrue {
				t.Errorf("%s: %+v", name, stalled)
			}
			continue
		}
		if stalled.Reason != lwsset.CodeNameTooLong || !strings.Contains(stalled.Message, fmt.Sprintf(" %d;", tt.limit)) {
			t.Errorf("%s: %+v", name, stalled)
		}
	}
}

func decidedStatus(t *testing.T, w lws.SetSnapshot) lwsv1.LeaderWorkerSetStatus {
	t.Helper()
	return one[action.WriteStatus](t, lwsset.Decide(w)).Status
}

// adopted is a pod that a StatefulSet took in place of one of its own.
func adopted(name, sts, instead string) step {
	return func(c *cluster) {
		pod := fakeapi.Pod(name, "w", 0)
		fakeapi.OwnedBy(pod, "apps/v1", identity.RefOf(identity.KindStatefulSet, fakeapi.Find[StatefulSet](c.Server, sts)))
		fakeapi.Up(pod)
		fakeapi.Drop[Pod](c.Server, instead)
		fakeapi.Add(c.Server, pod)
		on(sts, func(s StatefulSet) { s.Status.UpdatedReplicas-- })(c) // it is of none of its revisions
	}
}

// TestAPodWithANameInAnotherSpellingIsAConflict: the StatefulSet controller takes w-01 for w-1, and creates no w-1.
func TestAPodWithANameInAnotherSpellingIsAConflict(t *testing.T) {
	for name, tt := range map[string]struct{ pod, sts, instead string }{
		"a leader":         {"w-01", "w", "w-1"},
		"more zeros":       {"w-0001", "w", "w-1"},
		"the first leader": {"w-00", "w", "w-0"},
		"a worker":         {"w-0-01", "w-0", "w-0-1"},
		"the last worker":  {"w-1-002", "w-1", "w-1-2"},
	} {
		t.Run(name, func(t *testing.T) {
			c := running(t, 2, 3)
			adopted(tt.pod, tt.sts, tt.instead)(c)
			c.pass(time.Minute)
			set := told(c, nil)
			if got := condition(set.Status, lws.CodeNameConflict); got.Status != "True" || !strings.Contains(got.Message, "pod "+tt.pod+" counts as "+tt.instead+";") {
				t.Errorf("got %+v", got)
			}
			if got := condition(set.Status, ready); got.Reason != lws.CodeNameConflict || kstatus(set.Status, set.Generation) != failed {
				t.Errorf("it is %+v", got)
			}
			plan := c.decideSet()
			for _, a := range plan.Actions {
				if target := a.Target(); target.Name == tt.instead || target.Name == tt.pod {
					t.Errorf("it writes %s", spelled(plan))
				}
			}
			gone[Pod](tt.pod)(c)
			settled(c)
			if set := told(c, nil); condition(set.Status, lws.CodeNameConflict).Status == "True" || kstatus(set.Status, set.Generation) != current {
				t.Errorf("once it is gone: %+v", set.Status.Conditions)
			}
		})
	}
}

// A pod with another spelling of a name is no conflict unless a StatefulSet of the set adopted it.
func TestAForeignPodInAnotherSpellingIsNoConflict(t *testing.T) {
	c := running(t, 2, 2)
	pod := fakeapi.Pod("w-01", "w", 0)
	strange(c, pod)
	fakeapi.Add(c.Server, pod)
	c.pass(time.Minute)
	if set := told(c, nil); condition(set.Status, lws.CodeNameConflict).Status != "" || kstatus(set.Status, set.Generation) != current {
		t.Errorf("got %+v", set.Status.Conditions)
	}
}
