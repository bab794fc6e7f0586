package cluster

import (
	"errors"
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

// nodeLabels returns the labels of all nodes by name.
func (s *scene) nodeLabels() map[string]map[string]string {
	nodes := &corev1.NodeList{}
	s.Check("list nodes", s.Client.List(s.Context(), nodes))
	labels := map[string]map[string]string{}
	for i := range nodes.Items {
		labels[nodes.Items[i].Name] = nodes.Items[i].Labels
	}
	return labels
}

// judgeDomains checks that pods with one value of a label share a domain without others, and returns
// the domain of each value.
func (s *scene) judgeDomains(set *lwsv1.LeaderWorkerSet, by, topology string, want int) map[string]string {
	nodes := s.nodeLabels()
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
	return domains
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
	for _, tt := range []struct {
		policy lwsv1.SubGroupPolicyType
		size   int32
	}{{lwsv1.SubGroupPolicyTypeLeaderWorker, 4}, {lwsv1.SubGroupPolicyTypeLeaderExcluded, 5}} {
		t.Run(string(tt.policy), func(t *testing.T) {
			s := asideScene(t)
			set := s.settled(s.newSet("a", 2, tt.size, imageA, copied, partsOf(2, tt.policy),
				annotated(lwsv1.SubGroupExclusiveKeyAnnotationKey, rack)))
			before := s.judgeDomains(set, lwsv1.SubGroupUniqueHashLabelKey, rack, 4)
			leader := s.Pod("a-0")
			_, labelled := leader.Labels[lwsv1.SubGroupIndexLabelKey]
			same(t, "the leader is in a subgroup", tt.policy == lwsv1.SubGroupPolicyTypeLeaderWorker, labelled)
			s.restartGroup(set, "a-1")
			after := s.judgeDomains(set, lwsv1.SubGroupUniqueHashLabelKey, rack, 4)
			same(t, "subgroups", len(before), len(after))
		})
	}
}

// A changed placement is a new template for the StatefulSet controller. It is rolled out within the
// budget, each pod once.
func TestAChangedPlacementIsRolledOut(t *testing.T) {
	for name, tt := range map[string]struct {
		budget edit
		fewest int
		made   births
	}{
		"one group away": {budget(1, 0, 0), 1, births{Pods: 4, StatefulSets: 2}},
		"with surge":     {budget(0, 1, 0), 2, births{Pods: 6, StatefulSets: 3}},
	} {
		t.Run(name, func(t *testing.T) { changePlacement(asideScene(t), tt.budget, tt.fewest, tt.made) })
	}
}

func changePlacement(s *scene, within edit, least int, made births) {
	set := s.settled(s.newSet("a", 2, 2, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, zone), within))
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, zone, 2)
	before := s.StatefulSet(set.Name)
	mark := s.Changes()
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
	same(s.T, "fewest groups ready", least, fewest)
	same(s.T, "created", made, s.bornInto(set.UID, mark))
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 2)
	if after := s.StatefulSet(set.Name); after.Generation > before.Generation+5 { // the template, two groups, surge that goes
		s.Errorf("the leader StatefulSet was written %d times", after.Generation-before.Generation)
	}
}

// A node that lost its label gives workers no domain. No other test runs meanwhile.
func TestANodeWithoutTheLabelIsToldOnTheSet(t *testing.T) {
	s := newScene(t)
	alone := func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.NoneRestartPolicy
	}
	set := s.settled(s.newSet("a", 1, 2, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, rack), alone))
	leader := s.Pod("a-0")
	node := &corev1.Node{}
	s.Check("read the node", s.Client.Get(t.Context(), client.ObjectKey{Name: leader.Spec.NodeName}, node))
	here := node.Labels[rack]
	s.Patch(node, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, rack))
	t.Cleanup(func() { s.label(node, here) })
	workers := s.StatefulSet("a-0")
	s.Remove(workers)
	s.AwaitEvent("a", "TopologyUnknown")
	s.label(node, here)
	s.awaitSettled(set)
}

func (s *scene) label(node *corev1.Node, value string) {
	document := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, rack, value)
	if err := bed.Client.Patch(s.Context(), node.DeepCopy(), drill.Merge(document)); err != nil && s.Context().Err() == nil {
		s.Errorf("label node %s: %v", node.Name, err)
	}
}

// The subdomain policy changes both ways on a running set. Every pod has its Service at every moment.
func TestSubdomainPolicyBothWays(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 3, 2, imageA, budget(1, 0, 0)))
	for _, policy := range []lwsv1.SubdomainPolicy{lwsv1.SubdomainUniquePerReplica, lwsv1.SubdomainShared} {
		set = s.become(set, fmt.Sprintf(`{"spec":{"networkConfig":{"subdomainPolicy":%q}}}`, policy))
		s.awaitRolled(set, 2)
		s.Eventually("every pod has its service, of the leader there is", func() error { return s.unserved(set) })
	}
	s.Eventually("one service is left", func() error { return drill.Lacking("services", 1, len(drill.Live[*corev1.Service](s.Recorder))) })
	service := s.Service("a")
	s.Patch(service, `{"spec":{"selector":{"app":"stray"},"publishNotReadyAddresses":false}}`)
	s.Eventually("the service is put right", func() error {
		now := s.Service("a")
		return errors.Join(drill.Lacking("selector", set.Name, now.Spec.Selector[lwsv1.SetNameLabelKey]), drill.Lacking("labels selected by", 1, len(now.Spec.Selector)),
			drill.Lacking("publishes pods that are not ready", true, now.Spec.PublishNotReadyAddresses))
	})
}

// unserved names a pod without the Service of its subdomain.
func (s *scene) unserved(set *lwsv1.LeaderWorkerSet) error {
	for _, pod := range s.podsOf(set) {
		service := s.Service(pod.Spec.Subdomain)
		if service == nil {
			return fmt.Errorf("pod %s has no service %s", pod.Name, pod.Spec.Subdomain)
		}
		if leader := s.Pod(service.Name); leader != nil && service.OwnerReferences[0].UID != leader.UID {
			return fmt.Errorf("service %s is of the last leader", service.Name)
		}
	}
	return nil
}
