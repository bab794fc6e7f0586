package lws_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A set made in the very second in which its predecessor's pods were said that
// nothing was waited for, and ten seconds later that a pod was.
func TestAGhostBornInTheSetsOwnSecondIsToldAtOnce(t *testing.T) {
	set := fakeapi.Set("w", 1, 2)
	set.UID, set.Generation = "w", 1
	now := metav1.NewTime(set.CreationTimestamp.Add(2e9))
	ghost := fakeapi.Pod("w-0", "w", 0)
	ghost.UID, ghost.CreationTimestamp, ghost.DeletionTimestamp = "old", set.CreationTimestamp, &now
	plan := lws.DecideSet(lws.SetSnapshot{Now: now.Time, Set: set, Leaders: identity.Claim[*corev1.Pod]{Ghosts: []*corev1.Pod{ghost}}})
	for _, a := range plan.Actions {
		if write, ok := a.(action.WriteStatus); ok && write.Status.Conditions[0].Reason == lws.CodePreviousIncarnation {
			return
		}
	}
	t.Errorf("nothing is told: %+v", plan)
}
