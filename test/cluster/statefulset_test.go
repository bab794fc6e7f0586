package cluster

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// deletions are the ways to delete an object by hand.
var deletions = map[string]metav1.DeletionPropagation{
	"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground, "orphan": metav1.DeletePropagationOrphan,
}

// A deleted StatefulSet is created again: that of the leaders with all groups, and that of workers
// alone. Orphans are adopted. Where groups restart, deleted workers recreate their group.
func TestDeletedStatefulSetComesAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy lwsv1.RestartPolicyType
		whole  births
	}{
		{"a", lwsv1.NoneRestartPolicy, births{Pods: 6, StatefulSets: 4}},
		{"a-1", lwsv1.NoneRestartPolicy, births{Pods: 1, StatefulSets: 1}},
		{"a-1", lwsv1.RecreateGroupOnPodRestart, births{}},
	} {
		t.Run(fmt.Sprint(c.name, " ", c.policy), func(t *testing.T) {
			each(t, deletions, func(s *scene, policy metav1.DeletionPropagation) {
				set := s.settled(s.newSet("a", 3, 2, imageA, fakeapi.Policy(c.policy)))
				before, mark := s.UIDs(), s.Changes()
				sts, want := s.StatefulSet(c.name), c.whole
				s.Remove(sts, propagation(policy))
				if c.policy != lwsv1.NoneRestartPolicy {
					s.awaitRecreated(set, before, 1)
					return
				}
				if policy == metav1.DeletePropagationOrphan {
					want = births{StatefulSets: 1}
				}
				drill.Another(s.Scene, sts)
				s.awaitSettled(set)
				s.wantBorn(set.UID, mark, want)
			})
		})
	}
}

func headless(t *testing.T, service *corev1.Service, owner []metav1.OwnerReference, selector map[string]string) {
	t.Helper()
	same(t, "labels", map[string]string{lwsv1.SetNameLabelKey: "a"}, service.Labels)
	same(t, "owner", owner, service.OwnerReferences)
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

// The subdomain policy changes both ways on a running set. Every pod has its Service at every moment.
func TestSubdomainPolicyBothWays(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 3, 2, imageA, budget(1, 0, 0), uniquePerReplica))
	s.servedApart(set)
	for _, policy := range []lwsv1.SubdomainPolicy{lwsv1.SubdomainShared, lwsv1.SubdomainUniquePerReplica, lwsv1.SubdomainShared} {
		set = s.become(set, fmt.Sprintf(`{"spec":{"networkConfig":{"subdomainPolicy":%q}}}`, policy))
		s.awaitRolled(set, 2)
		s.Eventually("every pod has its service, of the leader there is", func() error { return s.unserved(set) })
	}
	s.awaitServices(1)
	service := s.Service("a")
	s.Patch(service, `{"spec":{"selector":{"app":"stray"},"publishNotReadyAddresses":false}}`)
	s.Eventually("the service is put right", func() error {
		now := s.Service("a")
		return errors.Join(drill.Lacking("selector", set.Name, now.Spec.Selector[lwsv1.SetNameLabelKey]), drill.Lacking("labels selected by", 1, len(now.Spec.Selector)),
			drill.Lacking("publishes pods that are not ready", true, now.Spec.PublishNotReadyAddresses))
	})
}

// servedApart checks the Services of groups. There is no shared one, and one that was deleted comes again.
func (s *scene) servedApart(set *lwsv1.LeaderWorkerSet) {
	s.awaitServices(3)
	for index := range 3 {
		name := fmt.Sprintf("a-%d", index)
		headless(s.T, s.Service(name), ownerOf(s.Pod(name), "v1", "Pod"), map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.GroupIndexLabelKey: fmt.Sprint(index)})
		for _, pod := range []*corev1.Pod{s.Pod(name), s.Pod(name + "-1")} {
			same(s.T, pod.Name+" subdomain", name, pod.Spec.Subdomain)
			same(s.T, pod.Name+" leader address", fmt.Sprintf("%s.%s.%s", name, name, s.Namespace), pod.Spec.Containers[0].Env[0].Value)
		}
	}
	s.reborn(set, s.Service("a-1"))
}

func (s *scene) awaitServices(want int) {
	s.Eventually("no service is left over", func() error {
		return drill.Lacking("services", want, len(drill.Live[*corev1.Service](s.Recorder)))
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
	have, wanted := s.bornInto(set.UID, mark), births{Pods: 2 * added, StatefulSets: added, Services: added}
	expect.Equalf(s, wanted, have, "created by scaling from %d to %d", was, replicas)
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
	have := s.StatefulSets()
	expect.Must(t, len(have) == 1, "there are %d statefulsets before the leader is ready, want its own only", len(have))
	s.Patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.aNode()}}, fmt.Sprintf(`{"metadata":{"labels":{%q:"yes"}}}`, home))
	s.awaitSettled(set)
	leader := s.Pod("a-0")
	workers := s.StatefulSet("a-0")
	for _, c := range leader.Status.Conditions {
		if c.Type == corev1.PodReady && workers.CreationTimestamp.Before(&c.LastTransitionTime) {
			t.Errorf("workers were created at %v, the leader was ready at %v", workers.CreationTimestamp, c.LastTransitionTime)
		}
	}
}

// The HorizontalPodAutoscaler controller scales a set by the metrics of the pods that the status
// selects. A CRD stands in for the metrics server.
func TestAnAutoscalerDrivesTheScale(t *testing.T) {
	s := newScene(t)
	s.define(metricsGroup, "v1beta1", "PodMetrics", "pods")
	set := s.settled(s.newSet("a", 2, 3, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Requests =
			corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
		set.Spec.RolloutStrategy.RollingUpdateConfiguration.MaxUnavailable = intstr.FromString("50%")
	}))
	first := s.UIDs()
	same(t, "groups that may be away", 1, s.mayBeAway(set))

	s.use(set, "180m")
	scaler := s.lendManifest("autoscaler", "VERSION", lwsv1.GroupVersion.String(), "KIND", "LeaderWorkerSet", "TARGET", "a")[0]
	set = s.awaitReplicas(set, 4, scaler)
	same(t, "groups that may be away", 2, s.mayBeAway(set))
	s.wantKept(first, func(name string) bool { return inGroups(set, name, 2, 3) })

	s.use(set, "40m")
	set = s.awaitReplicas(set, 2, scaler)
	same(t, "groups that may be away", 1, s.mayBeAway(set))
	same(t, "pods after scaling up and down", first, s.UIDs())
	s.wantBorn(set.UID, 0, births{Pods: 12, StatefulSets: 5, Services: 1, Revisions: 1})

	asked := s.metricsAsked()
	if got := asked[set.Status.HPAPodSelector]; !got || len(asked) != 1 {
		t.Errorf("metrics were asked for with %v, want leaders alone with %q", asked, set.Status.HPAPodSelector)
	}
}

// awaitReplicas waits until the autoscaler has set the replicas and the set is settled.
func (s *scene) awaitReplicas(set *lwsv1.LeaderWorkerSet, replicas int32, scaler *unstructured.Unstructured) *lwsv1.LeaderWorkerSet {
	var now *lwsv1.LeaderWorkerSet
	s.Eventually(fmt.Sprintf("the autoscaler asks for %d groups", replicas), func() error {
		now = s.Set(set.Name)
		if have := *now.Spec.Replicas; have != replicas {
			err := s.Read(scaler)
			return errors.Join(err, fmt.Errorf("%d groups are wanted; the autoscaler says %+v", have, scaler.Object["status"]))
		}
		return nil
	})
	return s.awaitSettled(now)
}

// mayBeAway returns the maxUnavailable of the leader StatefulSet.
func (s *scene) mayBeAway(set *lwsv1.LeaderWorkerSet) int {
	return s.StatefulSet(set.Name).Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue()
}

const metricsGroup = "metrics.k8s.io"

// use gives every pod of a set the same usage.
func (s *scene) use(set *lwsv1.LeaderWorkerSet, cpu string) { s.measured(s.podsOf(set), cpu) }

// measured gives pods the same usage.
func (s *scene) measured(pods []*corev1.Pod, cpu string) {
	for _, pod := range pods {
		metrics := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": metricsGroup + "/v1beta1", "kind": "PodMetrics",
			"timestamp":  time.Now().Add(time.Hour).UTC().Format(time.RFC3339), // later than the pod is ready
			"window":     "1s",
			"containers": []any{map[string]any{"name": "serve", "usage": map[string]any{"cpu": cpu}}},
		}}
		metrics.SetNamespace(pod.Namespace)
		metrics.SetName(pod.Name)
		metrics.SetLabels(pod.Labels)
		s.Eventually("the usage of "+pod.Name+" is written", func() error {
			return s.Client.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(metrics), client.FieldOwner("drill"))
		})
	}
}

// metricsAsked returns the selectors that the metrics of pods were asked for with.
func (s *scene) metricsAsked() map[string]bool {
	s.Check("read the audit log", bed.Audit.Sync())
	asked := map[string]bool{}
	for _, r := range bed.Audit.Kept(s.Audited, asksMetrics) {
		address, err := url.Parse(r.URI)
		s.Check("read an address", err)
		asked[address.Query().Get("labelSelector")] = true
	}
	return asked
}

// asksMetrics reports whether an autoscaler read the metrics of pods.
func asksMetrics(r drill.Request) bool {
	return r.Verb == "list" && strings.HasPrefix(r.URI, "/apis/"+metricsGroup+"/") && strings.HasPrefix(r.Agent, "kube-controller-manager/") &&
		strings.Contains(r.Agent, "horizontal-pod-autoscaler")
}
