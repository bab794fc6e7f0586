package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// The size of the sets that are deleted and created again.
const (
	groups    = 10
	groupSize = 4
	allPods   = groups * groupSize
)

// wholeLife is what a set creates that adopts nothing.
var wholeLife = births{Pods: allPods, StatefulSets: 1 + groups, Services: 1, Revisions: 1}

// rolledLife is what a set creates that adopts everything and rolls it to another template. The
// leader StatefulSet and the Service stay.
var rolledLife = births{Pods: allPods, StatefulSets: groups, Revisions: 1}

func TestRecreateBackground(t *testing.T) {
	recreateRounds(t, metav1.DeletePropagationBackground, imageB, wholeLife)
}

func TestRecreateForeground(t *testing.T) {
	recreateRounds(t, metav1.DeletePropagationForeground, imageB, wholeLife)
}

func TestRecreateOrphan(t *testing.T) {
	recreateRounds(t, metav1.DeletePropagationOrphan, imageB, rolledLife)
}

func TestRecreateOrphanUnchangedCreatesNothing(t *testing.T) {
	recreateRounds(t, metav1.DeletePropagationOrphan, imageA, births{})
}

// With the same template the previous revision has the name that the new one needs.
func TestRecreateBackgroundUnchanged(t *testing.T) {
	recreateRounds(t, metav1.DeletePropagationBackground, imageA, wholeLife)
}

// recreateRounds creates a set, deletes and creates it at once with an image, and deletes it.
func recreateRounds(t *testing.T, policy metav1.DeletionPropagation, image string, want births) {
	for n := range rounds(t) {
		ok := t.Run(fmt.Sprintf("round %d", n+1), func(t *testing.T) {
			s := newScene(t)
			l := s.recreate(s.firstLife(groups, groupSize), s.newSet("a", groups, groupSize, image), policy)
			now := s.awaitSettled(l.set)
			s.judge(l, want)
			s.end(now, metav1.DeletePropagationBackground)
			s.judge(l, want) // the end creates nothing
		})
		if !ok {
			return
		}
	}
}

// firstLife creates set "a".
func (s *scene) firstLife(replicas, size int32) *lwsv1.LeaderWorkerSet {
	s.Helper()
	return s.settled(s.newSet("a", replicas, size, imageA))
}

// end deletes a set and waits until nothing of it is left.
func (s *scene) end(set *lwsv1.LeaderWorkerSet, policy metav1.DeletionPropagation) {
	s.Helper()
	s.remove(set.DeepCopy(), propagation(policy))
	s.awaitNothing(set.UID)
}

// Template, network and number of groups may all differ between two incarnations.
func TestRecreateInAnotherShape(t *testing.T) {
	const replicas, size = 6, 3
	smaller := births{Pods: replicas * size, StatefulSets: 1 + replicas, Services: replicas, Revisions: 1}
	for _, c := range []struct {
		policy  metav1.DeletionPropagation
		network edit
		want    births
	}{
		{metav1.DeletePropagationBackground, uniquePerReplica, smaller},
		{metav1.DeletePropagationForeground, uniquePerReplica, smaller},
		{metav1.DeletePropagationOrphan, func(*lwsv1.LeaderWorkerSet) {}, births{Pods: replicas * size, StatefulSets: replicas, Revisions: 1}},
	} {
		t.Run(string(c.policy), func(t *testing.T) {
			s := newScene(t)
			next := s.newSet("a", replicas, size, imageB, c.network, func(set *lwsv1.LeaderWorkerSet) {
				leader := template(imageB)
				leader.Labels = map[string]string{"role": "leader"}
				set.Spec.LeaderWorkerTemplate.LeaderTemplate = &leader
			})
			l := s.recreate(s.firstLife(groups, groupSize), next, c.policy)
			s.awaitSettled(l.set)
			s.judge(l, c.want)
		})
	}
}

// Adopted groups roll at the pace of the new set.
func TestOrphansRollAtThePaceOfTheSet(t *testing.T) {
	s := asideScene(t)
	next := s.newSet("a", 3, 2, imageB, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy = lwsv1.RolloutStrategy{Type: lwsv1.RollingUpdateStrategyType}
	})
	l := s.recreate(s.firstLife(3, 2), next, metav1.DeletePropagationOrphan)
	s.awaitSettled(l.set)
	s.judge(l, births{Pods: 6, StatefulSets: 3, Revisions: 1})
}

// kwok's own pod stages delete a pod by name, and so hit successors. Each hit is a failure of
// the group, so only the back-off lets a recreation settle.
func TestRecreateSettlesOnStockStages(t *testing.T) {
	onStockStages(t)
	s := newScene(t)
	recreates := restartPolicy(lwsv1.RecreateGroupOnPodRestart)
	set := s.newSet("a", groups, groupSize, imageA, recreates)
	s.create(set)
	s.within(stockPatience, "the first set is settled", func() error { return s.unsettled(set) })
	for _, image := range []string{imageB, imageA, imageB} { // not every recreation hits a successor
		set, _ = find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
		set = s.recreate(set, s.newSet("a", groups, groupSize, image, recreates), metav1.DeletePropagationBackground).set
		s.within(stockPatience, "the next set is settled", func() error { return s.unsettled(set) })
	}
	for _, pod := range live[*corev1.Pod](s.recorder) {
		if pod.DeletionTimestamp != nil {
			t.Errorf("pod %s is still terminating", pod.Name)
		}
	}
}

// stockPatience bounds a recreation on pod stages that delete the wrong pod now and then.
const stockPatience = 10 * time.Minute

// onStockStages runs the rest of the test on a control plane with kwok's own pod stages.
func onStockStages(t *testing.T) {
	t.Helper()
	own, err := raise(t.TempDir(), "stock", bed.reaper)
	if err != nil {
		t.Fatal(err)
	}
	was := bed
	bed = own
	t.Cleanup(func() {
		bed = was
		if err := errors.Join(own.operator.Kill(), own.reaper.Note("operator", own.operator.Log, "0"), own.plane.Down()); err != nil {
			t.Error(err)
		}
	})
}
