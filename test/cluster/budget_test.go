package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
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

// exhaust creates set a whose group 1 may not fail, and lets it fail.
func (s *scene) exhaust(edits ...edit) (*lwsv1.LeaderWorkerSet, map[string]types.UID) {
	none := int32(0)
	set := s.settled(s.newSet("a", 2, 2, imageA, append([]edit{limited(&none)}, edits...)...))
	s.crash("a-1-1", 1)
	return set, s.awaitStopped()
}

// A group is recreated as often as it may. The next failure stops it: its pods stay, the set says so
// once, and the plugin shows the next step.
func TestAGroupHasABudgetOfRestarts(t *testing.T) {
	none, two := int32(0), int32(2)
	each(t, map[string]*int32{"unset": nil, "0": &none, "2": &two}, func(s *scene, limit *int32) {
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
		if last := entry.Failures[len(entry.Failures)-1]; entry.Leader != before["a-1"] || last.Reason != "OOMKilled" {
			s.Errorf("the evidence is %+v", entry)
		}
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
			if out, _, err := s.Plugin("", command, "a"); err != nil || !strings.Contains(out, "kubectl annotate pod a-1 -n "+s.Namespace+" leaderworkerset.sigs.k8s.io/recover=true") {
				s.Errorf("%s does not say what to do: %v\n%s", command, err, out)
			}
		}
		s.RestartOperator()
		s.touched(set)
		same(t, "pods", before, s.allUIDs())
		told := 0
		for _, e := range drill.Live[*eventsv1.Event](s.Recorder) {
			if e.Reason == exceeded {
				told++
			}
		}
		same(t, "events", 1, told)
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
		set, before := s.exhaust()
		lets(s, set, before)
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
