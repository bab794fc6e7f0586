package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const (
	exceeded = "ReplicaRestartBudgetExceeded"
	recovers = `{"metadata":{"annotations":{"leaderworkerset.sigs.k8s.io/recover":"true"}}}`
)

// limited is a set whose groups are recreated so often at most, without a back-off.
func limited(limit *int32) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Annotations = map[string]string{"lockstep.dev/restart-backoff": "off"}
		set.Spec.LeaderWorkerTemplate.MaxGroupRestarts = limit
	}
}

// stopped is what a group lacks until it was stopped: its containers ended, and its pods stay.
func (s *scene) stopped(names ...string) error {
	for _, name := range names {
		pod := s.Pod(name)
		switch {
		case pod == nil:
			return fmt.Errorf("pod %s is gone", name)
		case pod.DeletionTimestamp == nil || !slices.Contains(pod.Finalizers, lwsv1.GroupRestartBudgetFinalizer):
			return fmt.Errorf("pod %s is not kept", name)
		case drill.PodReady(pod):
			return fmt.Errorf("pod %s is ready", name)
		}
	}
	return nil
}

// awaitStopped waits until group 1 of set a was stopped, and returns the pods.
func (s *scene) awaitStopped() map[string]types.UID {
	s.Eventually("group 1 is stopped", func() error {
		return errors.Join(s.stopped("a-1", "a-1-1"), holds(s.Set("a"), lwsv1.LeaderWorkerSetDegraded, exceeded))
	})
	return s.allUIDs()
}

// allUIDs returns the UIDs of all pods, terminating ones too.
func (s *scene) allUIDs() map[string]types.UID {
	uids := map[string]types.UID{}
	for _, pod := range s.Pods() {
		uids[pod.Name] = pod.UID
	}
	return uids
}

// touched has the operator write a label of the set onto its StatefulSet: it saw all that was before.
func (s *scene) touched(set *lwsv1.LeaderWorkerSet) {
	s.Patch(set, `{"metadata":{"labels":{"touched":"yes"}}}`)
	s.Eventually("the operator is done", func() error {
		return drill.Lacking("label", "yes", s.StatefulSet("a").Labels["touched"])
	})
}

// A group is recreated as often as it may. The next failure stops it: its pods stay, the set says so
// once, and the plugin shows the next step.
func TestAGroupHasABudgetOfRestarts(t *testing.T) {
	none, two := int32(0), int32(2)
	inTurn(t, map[string]*int32{"unset": nil, "0": &none, "2": &two}, func(s *scene, limit *int32) {
		set := s.settled(s.newSet("a", 2, 2, imageA, limited(limit)))
		most := 3
		if limit != nil {
			most = int(*limit)
		}
		for range most {
			before := s.UIDs()
			s.crash("a-1-1", 1)
			s.awaitRecreated(set, before, 1)
		}
		if limit == nil {
			if now := s.Set("a"); now.Status.Restarts[0].Recreations != nil || holds(now, lwsv1.LeaderWorkerSetDegraded, exceeded) == nil {
				s.Errorf("it counts without a limit: %+v", now.Status.Restarts)
			}
			return
		}
		before := s.UIDs()
		s.crash("a-1-1", 1)
		same(t, "pods", before, s.awaitStopped())
		now := s.Set("a")
		entry := now.Status.Restarts[0]
		if counted := entry.Recreations; (counted == nil) != (most == 0) || counted != nil && int(*counted) != most {
			s.Errorf("counted %v, want %d", counted, most)
		}
		expect.That(s, entry.Leader == before["a-1"] && entry.Failures[len(entry.Failures)-1].Reason == "OOMKilled",
			"the evidence is %+v", entry)
		s.Eventually("the set stands still", func() error {
			now := s.Set("a")
			for _, c := range now.Status.Conditions {
				if slices.Contains([]string{"Available", "Progressing", "UpdateInProgress"}, c.Type) && (c.Status != "False" || c.Reason != exceeded) {
					return fmt.Errorf("condition %+v", c)
				}
			}
			return holds(now, lwsv1.LeaderWorkerSetStalled, exceeded)
		})
		s.AwaitEvent("a", exceeded, "Pod", "Delete", "Restart budget exhausted; terminated group 1 and stopped automatic recovery")
		for _, command := range []string{"status", "plan"} {
			s.prints("kubectl annotate pod a-1 -n "+s.Namespace+" leaderworkerset.sigs.k8s.io/recover=true", command, "a")
		}
		s.RestartOperator()
		s.touched(set)
		same(t, "pods", before, s.allUIDs())
		isOther := func(e *eventsv1.Event) bool { return e.Reason != exceeded }
		same(t, "events", 1, len(slices.DeleteFunc(drill.Live[*eventsv1.Event](s.Recorder), isOther)))
	})
}

// What ends the retention, and what does not.
func TestWhatLetsAStoppedGroupGo(t *testing.T) {
	each(t, map[string]func(*scene, *lwsv1.LeaderWorkerSet, map[string]types.UID){
		"recover": func(s *scene, set *lwsv1.LeaderWorkerSet, before map[string]types.UID) {
			s.Patch(s.Pod("a-1"), recovers)
			s.awaitRecreated(set, before, 1)
			s.crash("a-1-1", 1)
			s.awaitStopped()
		},
		"a new template": func(s *scene, set *lwsv1.LeaderWorkerSet, before map[string]types.UID) {
			s.awaitRecreated(s.become(set, pull(imageB)), before, 0, 1)
		},
		"scale-down": func(s *scene, set *lwsv1.LeaderWorkerSet, before map[string]types.UID) {
			set = s.awaitSettled(s.become(set, `{"spec":{"replicas":1}}`))
			s.Until("its pods are gone", func() bool { return s.Pod("a-1") == nil && s.Pod("a-1-1") == nil })
			s.awaitSettled(s.become(set, `{"spec":{"replicas":2}}`))
			s.wantKept(before, func(name string) bool { return inGroups(set, name, 1) })
		},
		"the set is deleted": func(s *scene, set *lwsv1.LeaderWorkerSet, _ map[string]types.UID) {
			s.end(set, metav1.DeletePropagationBackground)
			s.Until("no pod is there", func() bool { return len(s.Pods()) == 0 })
		},
		"a higher limit does not": func(s *scene, set *lwsv1.LeaderWorkerSet, before map[string]types.UID) {
			s.become(set, `{"spec":{"leaderWorkerTemplate":{"maxGroupRestarts":5}}}`)
			s.touched(set)
			same(s.T, "pods", before, s.awaitStopped())
		},
	}, func(s *scene, lets func(*scene, *lwsv1.LeaderWorkerSet, map[string]types.UID)) {
		set := s.settled(s.newSet("a", 2, 2, imageA, limited(new(int32(0)))))
		s.crash("a-1-1", 1)
		lets(s, set, s.awaitStopped())
	})
}

// An operator that was killed after its first write goes on from there.
func TestAnOperatorThatWasKilledGoesOnStoppingAGroup(t *testing.T) {
	s := newScene(t)
	none := int32(0)
	set := s.settled(s.newSet("a", 2, 2, imageA, limited(&none)))
	before := s.UIDs()
	s.Check("kill the operator", bed.Operator.Kill())
	s.crash("a-1-1", 1)
	s.Patch(s.Pod("a-1"), fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"},"finalizers":[%q]}}`,
		lwsv1.GroupRestartBudgetExhaustedAnnotationKey, lwsv1.GroupRestartBudgetFinalizer))
	s.Check("start the operator", bed.Operator.Start())
	same(t, "pods", before, s.awaitStopped())

	s.Check("kill the operator", bed.Operator.Kill())
	s.Remove(set, propagation(metav1.DeletePropagationBackground))
	s.Until("the leader StatefulSet is gone", func() bool { return s.StatefulSet("a") == nil })
	s.Want("the group stays without an operator", s.stopped("a-1", "a-1-1"))
	s.Check("start the operator", bed.Operator.Start())
	s.Until("no pod is there", func() bool { return len(s.Pods()) == 0 })
}

// A group that another implementation stopped stays as it is, and is recovered as one of ours.
func TestTakeoverOfAStoppedGroup(t *testing.T) {
	s := newScene(t)
	other := s.other(t)
	one := int32(1)
	e := s.found(other, otherSet{name: "a", replicas: 2, size: 2, edit: limited(&one)})
	e.tend()
	e.tell(e.replicas, false)
	s.Patch(e.set, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, lwsv1.GroupRestartCountsAnnotationKey,
		fmt.Sprintf(`{"%s/0":1,"%s/1":1}`, e.key, e.key)))
	s.Check("stop group 1", other.Stop(s.Context(), s.Pod("a-1"), s.Pod("a-1-1")))
	s.Eventually("group 1 is stopped", func() error { return s.stopped("a-1", "a-1-1") })
	before := s.allUIDs()

	s.RestartOperator()
	same(t, "pods", before, s.awaitStopped())
	s.crash("a-0-1", 1) // its count was at the limit
	s.Eventually("group 0 is stopped", func() error { return s.stopped("a-0", "a-0-1") })
	same(t, "pods", before, s.allUIDs())
	for _, leader := range []string{"a-0", "a-1"} {
		s.Patch(s.Pod(leader), recovers)
	}
	s.awaitRecreated(s.Set("a"), before, 0, 1)
	if drill.PodReady(s.Pod("a-1")) && s.StatefulSet("a").Annotations[lwsv1.GroupRestartCountsAnnotationKey] != "" {
		s.Errorf("the counts were copied to the StatefulSet")
	}
}

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
		first := s.Of(before[leader])
		s.Eventually("group "+leader+" is gone", func() error {
			pods = nil
			for name, uid := range before {
				rec := s.Of(uid)
				if key := lwsv1.GroupUniqueHashLabelKey; rec.Last.GetLabels()[key] != first.Last.GetLabels()[key] {
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
		first = s.Of(before[leader])
		for _, rec := range pods {
			expect.That(s, rec.Last.GetUID() == before[leader] || rec.Deleted >= first.Died,
				"pod %s was deleted before leader %s was gone", rec.Last.GetName(), leader)
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
		earlier := s.apart()
		expect.That(s, earlier >= 2*2+2+2+2*2, "only %d workers of former groups were seen", earlier)
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
