package set_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/expect"
)

func fences(s *dsv1.DisaggregatedSet) {
	s.Annotations = map[string]string{dsv1.RestartPolicyAnnotationKey: dsv1.FencePartners}
}

// fenced is a settled set with policy Fence: two groups of role p, and one of role d.
func fenced(t *testing.T, edits ...func(*dsv1.DisaggregatedSet)) *world {
	t.Helper()
	w := newWorld(edits...)
	w.settle(t)
	w.run()
	for _, pod := range w.Pods {
		pod.UID = types.UID(pod.Name)
	}
	fences(w.Set)
	w.step(t)
	return w
}

// traffic are the leaders that have the label, by role and index.
func (w *world) traffic() (names []string) {
	for _, pod := range w.Pods {
		if pod.Labels[dsv1.ReadyForTrafficLabelKey] == "true" {
			names = append(names, pod.Labels[dsv1.RoleLabelKey]+pod.Labels[lwsv1.GroupIndexLabelKey])
		}
	}
	slices.Sort(names)
	return names
}

// leader returns the leader of a group.
func (w *world) leader(name string) *corev1.Pod {
	return w.Pods[slices.IndexFunc(w.Pods, func(pod *corev1.Pod) bool {
		return name == pod.Labels[dsv1.RoleLabelKey]+pod.Labels[lwsv1.GroupIndexLabelKey]
	})]
}

// childOf returns the child of a role.
func (w *world) childOf(role string) *lwsv1.LeaderWorkerSet {
	return w.Children.Owned[slices.IndexFunc(w.Children.Owned, func(o *lwsv1.LeaderWorkerSet) bool { return o.Labels[dsv1.RoleLabelKey] == role })]
}

func become(pod *corev1.Pod, ready corev1.ConditionStatus) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
}

// fail records a failure of a group.
func (w *world) fail(name, reason, message string) {
	leader := w.leader(name)
	index, err := strconv.Atoi(leader.Labels[lwsv1.GroupIndexLabelKey])
	if err != nil {
		index = identity.HashIndex(leader.Labels[lwsv1.GroupIndexLabelKey])
	}
	w.childOf(leader.Labels[dsv1.RoleLabelKey]).Status.Restarts = []lwsv1.GroupRestarts{{
		Index: int32(index), Leader: leader.UID, FailedAt: metav1.NewTime(now), Failures: []lwsv1.PodFailure{{Reason: reason, Message: message}},
	}}
	become(leader, corev1.ConditionFalse)
}

// replace gives a group another leader, which is not ready.
func (w *world) replace(name string) {
	leader := w.leader(name)
	leader.UID += "-next"
	delete(leader.Labels, dsv1.ReadyForTrafficLabelKey)
	become(leader, corev1.ConditionFalse)
}

func TestPartnersGetNoTrafficUntilAFailedGroupIsReady(t *testing.T) {
	w := fenced(t)
	expect.Equal(t, []string{"d0", "p0", "p1"}, w.traffic())
	expect.Equal(t, nil, w.step(t))
	w.fail("d0", "OOMKilled", "")
	asked := w.step(t)
	expect.That(t, len(asked) == 3 && !slices.ContainsFunc(asked, func(a string) bool { return !strings.HasPrefix(a, "relabel a-0-") }), "steps: %v", asked)
	expect.Equal(t, nil, w.traffic()) // the failed group gets none either, while it waits for its back-off
	for _, there := range [][]*corev1.Pod{slices.DeleteFunc(slices.Clone(w.Pods), func(pod *corev1.Pod) bool { return pod == w.leader("d0") }), w.Pods} {
		all := w.Pods
		w.Pods = there
		expect.Equal(t, nil, w.step(t)) // without a leader, and with one that terminates
		w.Pods = all
		w.leader("d0").DeletionTimestamp = new(metav1.NewTime(now))
	}
	w.leader("d0").DeletionTimestamp = nil
	w.replace("d0")
	expect.Equal(t, nil, w.step(t))
	become(w.leader("d0"), corev1.ConditionTrue)
	w.step(t)
	expect.Equal(t, []string{"d0", "p0", "p1"}, w.traffic())

	become(w.leader("d0"), corev1.ConditionFalse) // it was ready since its failure
	expect.Equal(t, nil, w.step(t))
	w.fail("d0", "Error", "")
	w.step(t)
	expect.Equal(t, nil, w.traffic())
}

func TestAFailureConcernsOtherRolesThatAreNamed(t *testing.T) {
	w := fenced(t)
	w.fail("p0", "Error", "")
	w.step(t)
	expect.Equal(t, []string{"p1"}, w.traffic()) // the other groups of the role go on
	w = fenced(t)
	w.Set.Annotations[dsv1.RestartPartnersAnnotationKey] = "d"
	w.fail("d0", "Error", "")
	w.step(t)
	expect.Equal(t, []string{"p0", "p1"}, w.traffic())
	w = fenced(t)
	w.fail("d0", "Requested", "partner of former") // the policy was Restart before
	expect.Equal(t, nil, w.step(t))
}

func TestWhatIsNoFailureTakesNoTraffic(t *testing.T) {
	w := fenced(t)
	become(w.leader("d0"), corev1.ConditionFalse)
	expect.Equal(t, nil, w.step(t))
	w.replace("d0") // as a rollout or a user does
	expect.Equal(t, nil, w.step(t))
	expect.Equal(t, []string{"p0", "p1"}, w.traffic())

	w = fenced(t)
	restarts := &w.childOf("p").Status.Restarts // a group that is scaled away failed once
	*restarts = []lwsv1.GroupRestarts{{Index: 1, Leader: "former", Failures: []lwsv1.PodFailure{{Reason: "Error"}}}}
	become(w.leader("p0"), corev1.ConditionFalse)
	w.Set.Spec.Roles[0].Spec.Replicas, w.childOf("p").Spec.Replicas = new(int32(1)), new(int32(1))
	w.Pods = slices.DeleteFunc(w.Pods, func(pod *corev1.Pod) bool { return pod == w.leader("p1") })
	w.step(t)
	expect.Equal(t, []string{"d0", "p0"}, w.traffic())
}

// A Hash group has another key after a failure. The status follows it a moment later.
func TestAHashGroupIsFoundByItsKey(t *testing.T) {
	w := fenced(t, func(s *dsv1.DisaggregatedSet) { s.Spec.Roles[1].Spec.GroupIdentity = lwsv1.HashGroupIdentity })
	key, next := identity.GroupKey("ns", "one"), identity.GroupKey("ns", "two")
	w.leader("d0").Labels[lwsv1.GroupIndexLabelKey] = key
	w.fail("d"+key, "Error", "")
	w.step(t)
	expect.Equal(t, nil, w.traffic())
	w.replace("d" + key)
	w.leader("d" + key).Labels[lwsv1.GroupIndexLabelKey] = next
	expect.Equal(t, nil, w.step(t))
	w.childOf("d").Status.Restarts[0].Index = int32(identity.HashIndex(next))
	expect.Equal(t, nil, w.step(t))
	become(w.leader("d"+next), corev1.ConditionTrue)
	w.step(t)
	expect.Equal(t, []string{"d" + next, "p0", "p1"}, w.traffic())
}

// Services select by the label while leaders have it: selectors change before the labels go.
func TestServicesSelectLeadersThatGetTraffic(t *testing.T) {
	w := newWorld(func(s *dsv1.DisaggregatedSet) { s.Annotations = map[string]string{dsv1.ServicesAnnotationKey: "true"} })
	w.settle(t)
	selecting := func() (n int) {
		for _, service := range w.Services.Owned {
			if service.Spec.Selector[dsv1.ReadyForTrafficLabelKey] == "true" && service.Spec.Selector[dsv1.RoleLabelKey] != "" {
				n++
			}
		}
		return n
	}
	w.Set.Annotations[dsv1.RestartPolicyAnnotationKey] = dsv1.FencePartners
	asked := w.step(t)
	first := slices.IndexFunc(asked, func(a string) bool { return strings.HasSuffix(a, "-prv") })
	expect.That(t, first == 3 && selecting() == 2 && len(w.traffic()) == 3, "leaders first: %v", asked)
	expect.Equal(t, nil, w.step(t))
	delete(w.Set.Annotations, dsv1.RestartPolicyAnnotationKey)
	asked = w.step(t)
	expect.That(t, len(asked) == 2 && selecting() == 0 && len(w.traffic()) == 3, "Services first: %v", asked)
	w.step(t)
	expect.Equal(t, nil, w.traffic())
	expect.Equal(t, nil, w.step(t))
}

// A child that is refused keeps no leader in traffic.
func TestALabelWaitsForNoOtherWrite(t *testing.T) {
	w := fenced(t)
	w.fail("d0", "Error", "")
	w.Refused = []action.Refusal{{Sentence: "no", Kind: identity.KindLeaderWorkerSet, At: w.Now, Since: w.Now}}
	w.step(t)
	expect.Equal(t, nil, w.traffic())
}

// No label of a template is taken for ours.
func TestNoPodHasTheLabelFromItsTemplate(t *testing.T) {
	w := newWorld(fences, func(s *dsv1.DisaggregatedSet) {
		s.Spec.Roles[0].Spec.LeaderWorkerTemplate.WorkerTemplate.Labels = map[string]string{dsv1.ReadyForTrafficLabelKey: "true", "a": "b"}
	})
	w.step(t)
	labels := w.childOf("p").Spec.LeaderWorkerTemplate.WorkerTemplate.Labels
	_, has := labels[dsv1.ReadyForTrafficLabelKey]
	expect.That(t, !has && labels["a"] == "b", "labels: %v", labels)
}
