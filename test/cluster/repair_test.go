package cluster

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// deletions are the ways somebody may delete a child by hand.
var deletions = []metav1.DeletionPropagation{
	metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
}

// Deleted by hand, the leaders' StatefulSet comes again, and with it all groups.
// Its orphaned pods are taken over as they are.
func TestDeletedLeaderStatefulSetComesAgain(t *testing.T) {
	for _, policy := range deletions {
		t.Run(string(policy), func(t *testing.T) {
			want := births{Pods: 6, StatefulSets: 4}
			if policy == metav1.DeletePropagationOrphan {
				want = births{StatefulSets: 1}
			}
			repaired(t, "a", policy, want)
		})
	}
}

// Deleted by hand, the StatefulSet of one group's workers comes again; no other
// group notices. Where failures concern the group, see the restarts.
func TestDeletedWorkerStatefulSetComesAgain(t *testing.T) {
	for _, policy := range deletions {
		t.Run(string(policy), func(t *testing.T) {
			want := births{Pods: 1, StatefulSets: 1}
			if policy == metav1.DeletePropagationOrphan {
				want = births{StatefulSets: 1}
			}
			repaired(t, "a-1", policy, want)
		})
	}
}

// repaired deletes one StatefulSet of a set of 3 groups of 2 and counts what is
// created for it.
func repaired(t *testing.T, name string, policy metav1.DeletionPropagation, want births) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 3, 2, imageA, restartPolicy(lwsv1.NoneRestartPolicy))
	s.create(set)
	s.awaitSettled(set)
	mark := s.changes()
	sts, _ := find[*appsv1.StatefulSet](s.recorder, name)
	s.remove(sts.DeepCopy(), propagation(policy))
	s.eventually("another statefulset "+name+" is there", func() error {
		now, ok := find[*appsv1.StatefulSet](s.recorder, name)
		if !ok || now.UID == sts.UID || s.root(now.UID) != set.UID {
			return errStill
		}
		return nil
	})
	s.awaitSettled(set)
	if have := s.bornInto(set.UID, mark); have != want {
		s.dump()
		t.Fatalf("created: %+v, want %+v; late pods %s", have, want, names(bornSince[*corev1.Pod](s.recorder, mark)))
	}
}

// Scaled by hand, the workers of a group are as many again as their pods are told. It
// is no failure, and nobody else notices.
func TestScaledWorkersAreScaledBack(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 2, 2, imageA, restartPolicy(lwsv1.NoneRestartPolicy))
	s.create(set)
	set = s.awaitSettled(set)
	for _, replicas := range []int32{0, 3} {
		before := s.uids()
		sts, _ := find[*appsv1.StatefulSet](s.recorder, "a-1")
		generation := sts.Generation
		s.patch(sts.DeepCopy(), fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
		s.eventually("it is scaled back", func() error {
			if now, ok := find[*appsv1.StatefulSet](s.recorder, "a-1"); !ok || now.Generation < generation+2 || *now.Spec.Replicas != 1 {
				return errStill
			}
			return s.unsettled(set)
		})
		for _, name := range []string{"a-0", "a-0-1", "a-1"} {
			if s.uids()[name] != before[name] {
				s.dump()
				t.Fatalf("scaled to %d: pod %s is another one", replicas, name)
			}
		}
	}
}

// A status that somebody else writes, or wipes, is put right, and no pod notices.
func TestAStatusWrittenByOthersIsPutRight(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 2, 2, imageA)
	s.create(set)
	set = s.awaitSettled(set)
	pods := s.uids()
	for what, status := range map[string]string{
		"numbers":   `{"status":{"readyReplicas":7,"updatedReplicas":null}}`,
		"condition": `{"status":{"conditions":[{"type":"Available","status":"False","reason":"No","message":"no","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		"all of it": `{"status":null}`,
	} {
		s.check("write "+what, s.client.Status().Patch(s.Context(), set.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(status))))
		s.eventually(what+": it is put right", func() error {
			now := &lwsv1.LeaderWorkerSet{}
			if err := s.client.Get(s.Context(), keyOf(set), now); err != nil {
				return err
			}
			if now.Status.ReadyReplicas != 2 || now.Status.UpdatedReplicas != 2 || !meta.IsStatusConditionTrue(now.Status.Conditions, "Available") {
				return errStill
			}
			return nil
		})
	}
	same(t, "pods", pods, s.uids())
}
