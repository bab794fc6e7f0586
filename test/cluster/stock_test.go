package cluster

import (
	"errors"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// settleWithin bounds a recreation on pod stages that delete the wrong pod now and then.
const settleWithin = 10 * time.Minute

// stockRounds is how often the set is recreated: not every recreation hits a successor.
const stockRounds = 3

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
		if err := errors.Join(own.operator.kill(), own.reaper.Note("operator", own.operator.Log, strconv.Itoa(0)), own.plane.Down()); err != nil {
			t.Error(err)
		}
	})
}

// kwok's own pod stages delete a pod by name, and so hit successors. Each hit is a
// failure of the group, so only the back-off lets a recreation settle.
func TestRecreateSettlesOnStockStages(t *testing.T) {
	onStockStages(t)
	s := newScene(t)
	recreates := restartPolicy(lwsv1.RecreateGroupOnPodRestart)
	old := s.newSet("a", groups, groupSize, imageA, recreates)
	s.create(old)
	s.settle(settleWithin, func() error { return s.unsettled(old) })
	for round := range stockRounds {
		old, _ = find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
		mark := s.changes()
		l := s.recreate(old, s.newSet("a", groups, groupSize, []string{imageB, imageA}[round%2], recreates), metav1.DeletePropagationBackground)
		s.settle(settleWithin, func() error { return s.unsettled(l.set) })
		t.Logf("settled after %s, %d pods created for %d", time.Since(l.began).Round(time.Second), s.bornInto(l.set.UID, mark).Pods, allPods)
	}
	for _, pod := range live[*corev1.Pod](s.recorder) {
		if pod.DeletionTimestamp != nil {
			t.Errorf("pod %s is still terminating", pod.Name)
		}
	}
}

// settle waits until lacks returns nil, for longer than other waits last.
func (s *scene) settle(within time.Duration, lacks func() error) {
	s.Helper()
	deadline := time.After(within)
	for err := lacks(); err != nil; err = lacks() {
		select {
		case <-time.After(time.Second):
		case <-deadline:
			s.dump()
			s.Fatalf("not settled within %s: %v", within, err)
		}
	}
}
