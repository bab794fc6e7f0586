package cluster

import (
	"errors"
	"fmt"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

func TestSharedService(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 2, imageA))
	service := s.Service("a")
	headless(t, service, set, lwsv1.GroupVersion.String(), "LeaderWorkerSet", map[string]string{lwsv1.SetNameLabelKey: "a"})
	s.reborn(set, service)
	s.wantBorn(set.UID, 0, births{Pods: 4, StatefulSets: 3, Services: 2, Revisions: 1})
}

func TestUniquePerReplicaServices(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 2, imageA, uniquePerReplica))
	for index := range 2 {
		name := fmt.Sprintf("a-%d", index)
		s.awaitService(set, name)
		service := s.Service(name)
		leader := s.Pod(name)
		headless(t, service, leader, "v1", "Pod", map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.GroupIndexLabelKey: fmt.Sprint(index)})
		for _, pod := range []string{name, name + "-1"} {
			pod := s.Pod(pod)
			same(t, pod.Name+" subdomain", name, pod.Spec.Subdomain)
			same(t, pod.Name+" leader address", fmt.Sprintf("%s.%s.%s", name, name, s.Namespace), pod.Spec.Containers[0].Env[0].Value)
		}
	}
	if there := s.Service("a"); there != nil {
		t.Error("there != nil is a shared service too")
	}
	service := s.Service("a-1")
	s.reborn(set, service)
}

func headless(t *testing.T, service *corev1.Service, owner client.Object, apiVersion, kind string, selector map[string]string) {
	t.Helper()
	same(t, "labels", map[string]string{lwsv1.SetNameLabelKey: "a"}, service.Labels)
	same(t, "owner", ownerOf(owner, apiVersion, kind), service.OwnerReferences)
	same(t, "clusterIP", corev1.ClusterIPNone, service.Spec.ClusterIP)
	same(t, "publishNotReadyAddresses", true, service.Spec.PublishNotReadyAddresses)
	same(t, "ports", 0, len(service.Spec.Ports))
	same(t, "selector", selector, service.Spec.Selector)
}

// reborn deletes a Service and waits for the next one.
func (s *scene) reborn(set *lwsv1.LeaderWorkerSet, service *corev1.Service) {
	s.Remove(service)
	same(s.T, "root of the next service", set.UID, s.Root(drill.Another(s.Scene, service).UID))
}

// A group of one is its leader alone.
func TestGroupsOfOne(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 3, 1, imageA))
	s.wantBorn(set.UID, 0, births{Pods: 3, StatefulSets: 1, Services: 1, Revisions: 1})
}

// A set is scaled through its spec and through the subresource scale.
func TestScale(t *testing.T) {
	s := asideScene(t)
	s.settled(s.newSet("a", 2, 2, imageA, uniquePerReplica))
	for _, replicas := range []int32{4, 1, 0, 2} {
		s.scaleTo(replicas, func(set *lwsv1.LeaderWorkerSet) {
			s.Patch(set, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
		})
	}
	for _, replicas := range []int32{3, 1} {
		s.scaleTo(replicas, func(set *lwsv1.LeaderWorkerSet) {
			scale := &autoscalingv1.Scale{}
			s.Check("read the scale", s.Client.SubResource("scale").Get(t.Context(), set.DeepCopy(), scale))
			same(t, "selector of the scale", set.Status.HPAPodSelector, scale.Status.Selector)
			same(t, "replicas of the scale", set.Status.Replicas, scale.Status.Replicas)
			scale.Spec.Replicas = replicas
			s.Check("write the scale", s.Client.SubResource("scale").Update(t.Context(), set.DeepCopy(), client.WithSubResourceBody(scale)))
		})
	}
}

// scaleTo scales set "a" and checks that other groups stay, and that removed ones leave nothing.
func (s *scene) scaleTo(replicas int32, do func(*lwsv1.LeaderWorkerSet)) {
	set := s.Set("a")
	was, mark := *set.Spec.Replicas, s.Changes()
	do(set)
	want := set.DeepCopy()
	want.Generation++
	s.awaitSettled(want)
	added := int(max(0, replicas-was))
	s.Eventually("the groups are those wanted", func() error {
		return errors.Join(
			drill.Lacking("pods", int(replicas)*2, len(s.Pods())),
			drill.Lacking("statefulsets", int(replicas)+1, len(s.StatefulSets())),
			drill.Lacking("services", int(replicas), len(drill.Live[*corev1.Service](s.Recorder))))
	})
	if have, wanted := s.bornInto(set.UID, mark), (births{Pods: 2 * added, StatefulSets: added, Services: added}); have != wanted {
		s.Fatalf("created by scaling from %d to %d: %+v, want %+v", was, replicas, have, wanted)
	}
	if replicas > was && was > 0 {
		s.AwaitEvent("a", "GroupsProgressing", "Update", fmt.Sprintf("%d groups ready of total %d groups", was, replicas))
	}
}

// Workers start after their leader is ready, if the set asks for it.
func TestLeaderReadyStartup(t *testing.T) {
	s := asideScene(t)
	home := "home-" + s.Namespace
	set := s.newSet("a", 1, 2, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy
		leader := template(imageA)
		leader.Spec.NodeSelector = map[string]string{home: "yes"}
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = &leader
	})
	s.Create(set)
	s.Until("the leader is there", func() bool { return s.Pod("a-0") != nil })
	outlast(t)
	if have := s.StatefulSets(); len(have) != 1 {
		t.Fatalf("there are %d statefulsets before the leader is ready, want its own only", len(have))
	}
	s.nodesTake(home)
	s.awaitSettled(set)
	leader := s.Pod("a-0")
	workers := s.StatefulSet("a-0")
	for _, c := range leader.Status.Conditions {
		if c.Type == corev1.PodReady && workers.CreationTimestamp.Before(&c.LastTransitionTime) {
			t.Errorf("workers were created at %v, the leader was ready at %v", workers.CreationTimestamp, c.LastTransitionTime)
		}
	}
}

// nodesTake labels a node.
func (s *scene) nodesTake(label string) {
	nodes := &corev1.NodeList{}
	s.Check("list nodes", s.Client.List(s.Context(), nodes))
	s.Patch(&nodes.Items[0], fmt.Sprintf(`{"metadata":{"labels":{%q:"yes"}}}`, label))
}

func TestDeletionLeavesNothing(t *testing.T) {
	each(t, deletions[:2], func(s *scene, policy metav1.DeletionPropagation) {
		set := s.settled(s.newSet("a", 3, 3, imageA, uniquePerReplica))
		mark := s.Changes()
		s.end(set, policy)
		outlast(s.T)
		left := s.Pick(func(r *drill.Record) bool { return r.Died == 0 && r.Kind != "Event" })
		if len(left) > 0 {
			s.Errorf("left: %s", names(left))
		}
		if made := s.strangers("", mark); len(made) > 0 {
			s.Errorf("created while the set was deleted: %s", names(made))
		}
	})
}
