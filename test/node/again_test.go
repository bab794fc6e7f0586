//go:build linux

package node

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// A set is deleted and created again at once. Its pods take their time to end on a real
// node; nothing of the new life comes before what bears its name is gone, and each of its
// pods is created once.
func TestDeletedAndCreatedAgain(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	} {
		t.Run(string(policy), func(t *testing.T) { again(newScene(t), policy) })
	}
}

func again(s *scene, policy metav1.DeletionPropagation) {
	s.check("make disks", bed.addDisks(s.Context(), 6))
	old := s.newSet("a", 2, 3, withDisks)
	s.create(old)
	s.awaitAvailable(old)
	before, began := s.uids(), time.Now()
	s.remove(old.DeepCopy(), client.PropagationPolicy(policy))
	set := s.newSet("a", 2, 3, withDisks)
	s.eventually("the set is created again", func() error {
		err := s.Create(s.Context(), set)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			s.Fatalf("create the set again: %v", err)
		}
		return err
	})
	s.tell("deleted (%s) and created again", policy)
	s.awaitLife(set)
	s.tell("%s: the new life is Available %.1fs after the old one was deleted", policy, time.Since(began).Seconds())

	now := s.uids()
	for name, count := range s.created() {
		kept := now[name] == before[name]
		switch {
		case policy == metav1.DeletePropagationOrphan && !kept:
			s.Errorf("pod %s was not taken over", name)
		case policy != metav1.DeletePropagationOrphan && kept:
			s.Errorf("pod %s is of the former life", name)
		case count != 2-boolean(kept):
			s.Errorf("%d pods %s were created", count, name)
		}
		if was, is := s.pods.life(before[name]), s.pods.life(now[name]); !kept && is.born < was.gone {
			s.Errorf("pod %s came before its namesake was gone", name)
		}
	}
	if policy != metav1.DeletePropagationOrphan {
		s.checkInherited(before, now, "a-0", "a-0-1", "a-1-2")
	}
}

// awaitLife waits until a set is Available with StatefulSets that are its own.
func (s *scene) awaitLife(set *lwsv1.LeaderWorkerSet) {
	s.Helper()
	s.eventually("the leaders belong to the new life", func() error {
		leaders := &appsv1.StatefulSet{}
		if err := s.Get(context.WithoutCancel(s.Context()), s.key(set.Name), leaders); err != nil {
			return err
		}
		if owner := metav1.GetControllerOf(leaders); owner == nil || owner.UID != set.UID || leaders.DeletionTimestamp != nil {
			return errors.New("they do not")
		}
		return nil
	})
	s.awaitAvailable(set)
}
