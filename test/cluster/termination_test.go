package cluster

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// vanishing gives the pods time to end. The restart policy None leaves deleted leaders to
// podTerminationPolicy.
func vanishing(after string, policy lwsv1.PodTerminationPolicyType) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.PodTerminationPolicy = policy
		set.Spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.NoneRestartPolicy
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{"local.lockstep.dev/vanish-after": after}
	}
}

// awaitEnd waits until groups of an earlier moment are gone, and checks how each of them ended.
func (s *scene) awaitEnd(before map[string]types.UID, parallel bool, leaders ...string) {
	for _, leader := range leaders {
		var pods []drill.Record
		s.Eventually("group "+leader+" is gone", func() error {
			pods = nil
			for name, uid := range before {
				rec := s.Of(uid)
				if name != leader && !strings.HasPrefix(name, leader+"-") {
					continue
				}
				if pods = append(pods, rec); rec.Died == 0 {
					return fmt.Errorf("pod %s is there", name)
				}
			}
			return nil
		})
		if parallel {
			s.EndedTogether(pods)
			continue
		}
		first := s.Of(before[leader])
		for _, rec := range pods {
			if rec.Last.GetUID() != before[leader] && rec.Deleted < first.Died {
				s.Errorf("pod %s was deleted before leader %s was gone", rec.Last.GetName(), leader)
			}
		}
	}
}

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

// In Parallel, every pod of a group is deleted before the first of them is gone, whatever ends the
// group. By default, workers are deleted once their leader is gone. A worker of a former group that still ends would join
// the new leader by its name: the new leader gets no node until then. A first creation has no gate, and a leader that was
// gated runs.
func TestGroupsEndAsTheirPolicySays(t *testing.T) {
	each(t, map[string]lwsv1.PodTerminationPolicyType{
		"Parallel": lwsv1.ParallelPodTermination, "Default": lwsv1.DefaultPodTermination,
	}, func(s *scene, policy lwsv1.PodTerminationPolicyType) {
		parallel := policy == lwsv1.ParallelPodTermination
		set := s.settled(s.newSet("a", 2, 3, imageA, vanishing("3s", policy)))
		before := s.UIDs()
		set = s.awaitSettled(s.become(set, pull(imageB)))
		s.awaitEnd(before, parallel, "a-0", "a-1")

		before = s.UIDs()
		s.Remove(s.Pod("a-1"))
		s.awaitEnd(before, parallel, "a-1")
		s.awaitSettled(set)

		before = s.UIDs()
		set = s.become(set, `{"spec":{"replicas":1}}`)
		s.awaitEnd(before, parallel, "a-1")
		s.awaitSettled(set)

		set = s.awaitSettled(s.become(set, `{"spec":{"leaderWorkerTemplate":{"restartPolicy":"RecreateGroupOnPodRestart"}}}`))
		before = s.UIDs()
		s.crash("a-0-1", 1)
		s.awaitEnd(before, true, "a-0")
		s.awaitSettled(set)

		before = s.UIDs()
		s.end(set, metav1.DeletePropagationBackground)
		s.awaitEnd(before, parallel, "a-0")

		set = s.settled(s.newSet("a", 2, 3, imageA, vanishing("3s", policy)))
		before = s.UIDs()
		s.end(set, metav1.DeletePropagationForeground)
		s.awaitEnd(before, true, "a-0", "a-1") // the garbage collector deletes all of them
		if earlier := s.apart(); earlier < 2*2+2+2+2*2 {
			s.Errorf("only %d workers of former groups were seen", earlier)
		}
	})
}

// A change of the policy replaces no pod, costs one write for each group, and outlasts the set.
func TestAChangedPolicyOutlastsTheSet(t *testing.T) {
	s := asideScene(t)
	set := s.restful(s.newSet("a", 2, 3, imageA, vanishing("3s", lwsv1.DefaultPodTermination)))
	before := s.UIDs()
	s.awaitPolicy(set, "")
	s.Check("read the audit log", bed.Audit.Sync())
	mark := bed.Audit.Position()
	set = s.become(set, `{"spec":{"podTerminationPolicy":"Parallel"}}`)
	s.awaitPolicy(set, "Parallel")
	s.awaitSettled(set)
	same(t, "pods", before, s.UIDs())
	wrote := map[string]int{}
	for _, r := range s.LockstepWrote(mark) {
		if r.Resource == "events" { // of the creation: they are sent later
			continue
		}
		wrote[strings.Trim(r.Verb+" "+r.Resource+" "+r.Subresource, " ")]++
	}
	same(t, "writes", map[string]int{"patch statefulsets": 2, "patch leaderworkersets status": 1}, wrote)
	s.become(set, `{"spec":{"podTerminationPolicy":"Default"}}`)
	s.awaitPolicy(set, "")
	s.become(set, `{"spec":{"podTerminationPolicy":"Parallel"}}`)
	s.awaitPolicy(set, "Parallel")
	s.end(set, metav1.DeletePropagationBackground)
	s.awaitEnd(before, true, "a-0", "a-1")
}

// awaitPolicy waits until the worker StatefulSets of a set have this annotation.
func (s *scene) awaitPolicy(set *lwsv1.LeaderWorkerSet, want string) {
	for i := range *set.Spec.Replicas {
		drill.Await(s.Scene, fmt.Sprintf("%s-%d", set.Name, i), "says "+want, func(sts *appsv1.StatefulSet) error {
			return drill.Lacking("annotation", want, sts.Annotations[lwsv1.PodTerminationPolicyAnnotationKey])
		})
	}
}

// An operator that was killed before the set was deleted ends its groups when it is back, while
// their leaders still end. No object says then what the set asked for but the groups themselves.
func TestGroupsEndAfterTheOperatorWasAway(t *testing.T) {
	s := newScene(t)
	set := s.settled(s.newSet("a", 2, 3, imageA, vanishing("30s", lwsv1.ParallelPodTermination)))
	before := s.UIDs()
	s.Check("kill the operator", bed.Operator.Kill())
	s.Remove(set, client.PropagationPolicy(metav1.DeletePropagationBackground))
	for _, leader := range []string{"a-0", "a-1"} {
		drill.Await(s.Scene, leader, "is deleted", func(pod *corev1.Pod) error {
			if pod.DeletionTimestamp == nil {
				return drill.ErrStill
			}
			return nil
		})
	}
	s.Check("start the operator", bed.Operator.Start())
	s.awaitEnd(before, true, "a-0", "a-1")
}
