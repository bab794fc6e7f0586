package lws_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A leader that was deleted with --cascade=orphan leaves its workers to the next one, if
// that one is at their revision. Workers of another revision are foreign.
func TestAnOrphanedWorkerStatefulSetIsAdoptedAtItsRevisionAlone(t *testing.T) {
	for _, older := range []bool{false, true} {
		c := running(t, 1, 2)
		fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) {
			sts.OwnerReferences = nil
			if older {
				sts.Labels[lwsv1.RevisionKey] = "older"
			}
		})
		_, conflict := waitFor(c.decideSet(), lws.CodeNameConflict)
		if conflict != older {
			t.Errorf("older %t: name conflict %t", older, conflict)
		}
		if older {
			continue
		}
		adoption := one[action.Apply](t, c.decideGroup("w-0"))
		leader := find[*corev1.Pod](c, "w-0")
		if *adoption.Adopter != identity.RefOf(identity.KindPod, leader) || !metav1.IsControlledBy(adoption.Object, leader) {
			t.Errorf("adopted by %v", adoption.Adopter)
		}
	}
}

// A revision is needed to create workers, not to adopt those that run.
func TestAnOrphanedWorkerStatefulSetIsAdoptedThoughItsRevisionIsLost(t *testing.T) {
	c := running(t, 1, 2)
	fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) { sts.OwnerReferences = nil })
	for _, lost := range revisions(c) {
		delete(c.Objects, fakeapi.NameOf(lost))
	}
	one[action.Apply](t, c.decideGroup("w-0"))
}
