package cluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// apart checks that no leader got a node while a worker of the group before it was there, and returns how many workers
// that concerns.
func (s *scene) apart() (earlier int) {
	pods := s.Pick(func(rec *drill.Record) bool { return rec.Kind == "Pod" })
	for _, leader := range pods {
		if leader.Last.GetLabels()[lwsv1.WorkerIndexLabelKey] != "0" || leader.Bound == 0 {
			continue
		}
		for _, worker := range pods {
			if !strings.HasPrefix(worker.Last.GetName(), leader.Last.GetName()+"-") || worker.Born > leader.Born {
				continue
			}
			earlier++
			if worker.Died == 0 || worker.Died > leader.Bound {
				s.Errorf("leader %s got a node before worker %s of the group before it was gone", leader.Last.GetName(), worker.Last.GetName())
			}
		}
	}
	return earlier
}

// A worker of a former group that still ends would join the new leader by its name: the new leader gets no node until
// then, whatever ended the group. A first creation has no gate, and a leader that was gated runs.
func TestNoGroupRunsBesideItsPast(t *testing.T) {
	each(t, map[string]lwsv1.PodTerminationPolicyType{
		"Parallel": lwsv1.ParallelPodTermination, "Default": lwsv1.DefaultPodTermination,
	}, func(s *scene, policy lwsv1.PodTerminationPolicyType) {
		set := s.settled(s.newSet("a", 2, 3, imageA, vanishing("3s", policy)))
		set = s.awaitSettled(s.become(set, pull(imageB)))
		before := s.UIDs()
		s.Remove(s.Pod("a-1"))
		s.awaitEnd(before, policy == lwsv1.ParallelPodTermination, "a-1")
		set = s.awaitSettled(set)

		set = s.awaitSettled(s.become(set, `{"spec":{"leaderWorkerTemplate":{"restartPolicy":"RecreateGroupOnPodRestart"}}}`))
		before = s.UIDs()
		s.crash("a-0-1", 1)
		s.awaitEnd(before, true, "a-0")
		s.awaitSettled(set)

		before = s.UIDs()
		s.end(set, metav1.DeletePropagationBackground)
		s.settled(s.newSet("a", 2, 3, imageA, vanishing("3s", policy)))
		s.awaitEnd(before, policy == lwsv1.ParallelPodTermination, "a-0", "a-1")
		if earlier := s.apart(); earlier < 2*2+2+2+2*2 {
			s.Errorf("only %d workers of former groups were seen", earlier)
		}
	})
}
