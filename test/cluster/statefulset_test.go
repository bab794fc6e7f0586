package cluster

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// deletions are the ways to delete an object by hand.
var deletions = []metav1.DeletionPropagation{
	metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
}

// A deleted StatefulSet is created again: that of the leaders with all groups, and that of workers
// alone. Orphans are adopted.
func TestDeletedStatefulSetComesAgain(t *testing.T) {
	for name, whole := range map[string]births{"a": {Pods: 6, StatefulSets: 4}, "a-1": {Pods: 1, StatefulSets: 1}} {
		t.Run(name, func(t *testing.T) {
			each(t, deletions, func(s *scene, policy metav1.DeletionPropagation) {
				want := whole
				if policy == metav1.DeletePropagationOrphan {
					want = births{StatefulSets: 1}
				}
				set := s.settled(s.newSet("a", 3, 2, imageA, restartPolicy(lwsv1.NoneRestartPolicy)))
				mark := s.Changes()
				sts := s.StatefulSet(name)
				s.Remove(sts, propagation(policy))
				drill.Another(s.Scene, sts)
				s.awaitSettled(set)
				s.wantBorn(set.UID, mark, want)
			})
		})
	}
}

// A worker StatefulSet that was scaled by hand is scaled back. It is no failure of the group.
func TestScaledWorkersAreScaledBack(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 2, imageA, restartPolicy(lwsv1.NoneRestartPolicy)))
	for _, replicas := range []int32{0, 3} {
		before := s.UIDs()
		sts := s.StatefulSet("a-1")
		generation := sts.Generation
		s.Patch(sts, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
		s.Eventually("it is scaled back", func() error {
			if now := s.StatefulSet("a-1"); now == nil || now.Generation < generation+2 || *now.Spec.Replicas != 1 {
				return drill.ErrStill
			}
			return s.unsettled(set)
		})
		s.wantKept(before, isPod("a-1-1"))
	}
}

// The operator repairs a status that others wrote or removed. Pods stay.
func TestAStatusWrittenByOthersIsPutRight(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 2, imageA))
	pods := s.UIDs()
	for what, status := range map[string]string{
		"numbers":   `{"status":{"readyReplicas":7,"updatedReplicas":null}}`,
		"condition": `{"status":{"conditions":[{"type":"Available","status":"False","reason":"No","message":"no","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		"all of it": `{"status":null}`,
	} {
		s.PatchStatus(set, status)
		s.Eventually(what+": it is put right", func() error {
			now := &lwsv1.LeaderWorkerSet{}
			if err := s.Get(set.Name, now); err != nil {
				return err
			}
			if now.Status.ReadyReplicas != 2 || now.Status.UpdatedReplicas != 2 || !meta.IsStatusConditionTrue(now.Status.Conditions, "Available") {
				return drill.ErrStill
			}
			return nil
		})
	}
	same(t, "pods", pods, s.UIDs())
}

// A leader that is deleted without its workers comes again, and adopts them.
func TestWorkersLeftBehind(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 3, imageA, restartPolicy(lwsv1.NoneRestartPolicy)))
	workers := s.StatefulSet("a-1")
	leader := s.Pod("a-1")
	s.Remove(leader, propagation(metav1.DeletePropagationOrphan))
	next := drill.Another(s.Scene, leader)
	s.Eventually("the next leader adopts the workers", func() error {
		now := s.Now(workers)
		return drill.Lacking("adopted", true, now != nil && metav1.IsControlledBy(now, next))
	})
	s.awaitSettled(set)
}
