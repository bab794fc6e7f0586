package lws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
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
