package cluster

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// Node labels of the local control plane: 3 zones, and racks of 4 nodes each.
const (
	zone = "topology.kubernetes.io/zone"
	rack = "local.lockstep.dev/rack"
)

func annotated(key, value string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		if set.Annotations == nil {
			set.Annotations = map[string]string{}
		}
		set.Annotations[key] = value
	}
}

func partsOf(size int32, policy lwsv1.SubGroupPolicyType) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{SubGroupSize: &size, Type: &policy}
	}
}

// judgeDomains checks that pods with one value of a label share a domain without others.
func (s *scene) judgeDomains(set *lwsv1.LeaderWorkerSet, by, topology string, want int) {
	list := &corev1.NodeList{}
	s.Check("list nodes", s.Client.List(s.Context(), list))
	nodes := map[string]map[string]string{}
	for i := range list.Items {
		nodes[list.Items[i].Name] = list.Items[i].Labels
	}
	domains, inhabitants := map[string]string{}, map[string]string{}
	for _, pod := range s.podsOf(set) {
		who, where := pod.Labels[by], nodes[pod.Spec.NodeName][topology]
		if who == "" || pod.Spec.NodeName == "" {
			continue
		}
		if domains[who] == "" {
			domains[who] = where
		}
		if inhabitants[where] == "" {
			inhabitants[where] = who
		}
		if where == "" || domains[who] != where || inhabitants[where] != who {
			s.Fatalf("pod %s of %s is in %s %q; %s is in %q, and there is %s", pod.Name, who, topology, where, who, domains[who], inhabitants[where])
		}
	}
	if len(domains) != want {
		s.Fatalf("%d domains, want %d", len(domains), want)
	}
}

func TestExclusiveTopology(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 4, 4, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, rack), budget(1, 0, 0)))
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 4)
	s.restartGroup(set, "a-1")
	s.restartGroup(set, "a-3")
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 4)
	set = s.become(set, pull(imageB))
	s.awaitRolled(set, 3)
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 4)
	workers := s.StatefulSet("a-2")
	s.Remove(workers)
	drill.Another(s.Scene, workers)
	s.awaitSettled(set)
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 4)
	l := s.recreate(set, s.newSet("a", 4, 4, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, rack)), "Background")
	s.awaitSettled(l.set)
	s.judgeDomains(l.set, lwsv1.GroupUniqueHashLabelKey, rack, 4)
}

// There are five racks: the sixth group has none, and an event of the set says so.
func TestAGroupWithoutADomainIsToldOnTheSet(t *testing.T) {
	s := asideScene(t)
	set := s.newSet("a", 6, 2, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, rack))
	s.Create(set)
	s.AwaitEvent("a", "LeaderUnschedulable")
	s.Eventually("the other groups run", func() error { return drill.Lacking("groups ready", 5, len(s.readyGroups(set))) })
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 5)
	s.awaitSettled(s.become(set, `{"spec":{"replicas":5}}`))
}

// copied adds the labels of a running leader to the template.
func copied(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Labels = map[string]string{
		lwsv1.WorkerIndexLabelKey: "0", lwsv1.GroupIndexLabelKey: "0", lwsv1.SubGroupIndexLabelKey: "0",
	}
}

func TestSubgroupTopology(t *testing.T) {
	each(t, map[string]int32{"LeaderWorker": 4, "LeaderExcluded": 5}, func(s *scene, size int32) {
		policy := lwsv1.SubGroupPolicyTypeLeaderWorker
		if size == 5 {
			policy = lwsv1.SubGroupPolicyTypeLeaderExcluded
		}
		set := s.settled(s.newSet("a", 2, size, imageA, copied, partsOf(2, policy), annotated(lwsv1.SubGroupExclusiveKeyAnnotationKey, rack)))
		s.judgeDomains(set, lwsv1.SubGroupUniqueHashLabelKey, rack, 4)
		_, labelled := s.Pod("a-0").Labels[lwsv1.SubGroupIndexLabelKey]
		same(s.T, "the leader is in a subgroup", size == 4, labelled)
		s.restartGroup(set, "a-1")
		s.judgeDomains(set, lwsv1.SubGroupUniqueHashLabelKey, rack, 4)
	})
}

// A changed placement is a new template for the StatefulSet controller. It is rolled out within the
// budget, each pod once.
func TestAChangedPlacementIsRolledOut(t *testing.T) {
	each(t, map[string]int32{"one group away": 0, "with surge": 1}, func(s *scene, surge int32) {
		set := s.settled(s.newSet("a", 2, 2, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, zone), budget(1-surge, surge, 0)))
		s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, zone, 2)
		before, mark := s.StatefulSet(set.Name), s.Changes()
		s.Patch(set, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, lwsv1.ExclusiveKeyAnnotationKey, rack))
		fewest := 2
		s.Eventually("every group is placed by rack", func() error {
			fewest = min(fewest, len(s.readyGroups(set)))
			for _, pod := range s.podsOf(set) {
				if pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != rack {
					return fmt.Errorf("pod %s is not", pod.Name)
				}
			}
			return s.unsettled(set)
		})
		same(s.T, "fewest groups ready", 1+int(surge), fewest)
		same(s.T, "created", births{Pods: 4 + 2*int(surge), StatefulSets: 2 + int(surge)}, s.bornInto(set.UID, mark))
		s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 2)
		if after := s.StatefulSet(set.Name); after.Generation > before.Generation+5 { // the template, two groups, surge that goes
			s.Errorf("the leader StatefulSet was written %d times", after.Generation-before.Generation)
		}
	})
}

// A node that lost its label gives workers no domain. No other test runs meanwhile.
func TestANodeWithoutTheLabelIsToldOnTheSet(t *testing.T) {
	s := newScene(t)
	set := s.settled(s.newSet("a", 1, 2, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, rack), restartPolicy(lwsv1.NoneRestartPolicy)))
	leader := s.Pod("a-0")
	node := &corev1.Node{}
	s.Check("read the node", s.Client.Get(t.Context(), client.ObjectKey{Name: leader.Spec.NodeName}, node))
	here := node.Labels[rack]
	back := drill.Merge(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, rack, here))
	s.Patch(node, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, rack))
	t.Cleanup(func() { must(t, bed.Client.Patch(context.Background(), node.DeepCopy(), back)) })
	workers := s.StatefulSet("a-0")
	s.Remove(workers)
	s.AwaitEvent("a", "TopologyUnknown")
	s.Check("label the node", s.Client.Patch(t.Context(), node.DeepCopy(), back))
	s.awaitSettled(set)
}
