package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// trafficWithin is how soon leaders of partners lose and get the label.
const trafficWithin = 5 * time.Second

// awaitTraffic waits until the leaders of some roles, and no other pods, have the label.
func (s *scene) awaitTraffic(limit time.Duration, what string, roles ...string) {
	s.Helper()
	s.Within(limit, what, func() error {
		var wrong []string
		for _, pod := range s.Pods() {
			gets := pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" && slices.Contains(roles, pod.Labels[dsv1.RoleLabelKey])
			if has := pod.Labels[dsv1.ReadyForTrafficLabelKey] == "true"; pod.DeletionTimestamp == nil && has != gets {
				wrong = append(wrong, fmt.Sprintf("%s: %t", pod.Name, has))
			}
		}
		if len(wrong) > 0 {
			return errors.New(strings.Join(wrong, ", "))
		}
		return nil
	})
}

// uidsOfRole are the UIDs of the pods of a role.
func (s *scene) uidsOfRole(role string) map[string]types.UID {
	uids := map[string]types.UID{}
	for _, pod := range s.Pods() {
		if pod.Labels[dsv1.RoleLabelKey] == role {
			uids[pod.Name] = pod.UID
		}
	}
	return uids
}

// With policy Fence, a failed group takes its partners out of traffic until it is ready again, and no other pod is recreated.
func TestPartnersGetNoTrafficWhileAGroupIsDown(t *testing.T) {
	s := newScene(t)
	set := s.rolesSet("a", s.roleOf("prefill", 2, 2, imageA), s.roleOf("decode", 2, 2, imageA))
	set.Annotations = map[string]string{
		dsv1.RestartPolicyAnnotationKey: dsv1.FencePartners, dsv1.RestartPartnersAnnotationKey: "decode", dsv1.ServicesAnnotationKey: "true",
	}
	set = s.settledRoles(set)
	s.awaitTraffic(drill.Patience, "all leaders have the label", "prefill", "decode")
	s.Until("Services select by it", func() bool {
		selecting := 0
		for _, service := range drill.Live[*corev1.Service](s.Recorder) {
			if service.Spec.Selector[dsv1.ReadyForTrafficLabelKey] == "true" {
				selecting++
			}
		}
		return selecting == 2
	})
	outlast(t)
	since := bed.Position()
	outlast(t)
	expect.Emptyf(t, s.LockstepWrote(since), "writes at rest")
	decode, prefill := s.uidsOfRole("decode"), s.uidsOfRole("prefill")
	names := s.childrenOf(set)
	child := names[slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, "prefill") })]
	leader := s.keep(child + "-0")
	s.crash(child+"-0-1", 1)
	s.awaitTraffic(trafficWithin, "leaders of the partner lose the label", "prefill")
	outlast(t)
	s.awaitTraffic(trafficWithin, "they have none while the group is down", "prefill")
	s.let(leader)
	s.awaitRoles(set)
	s.awaitTraffic(trafficWithin, "they have it again", "prefill", "decode")
	expect.That(t, maps.Equal(decode, s.uidsOfRole("decode")), "pods of the partner were recreated")
	expect.That(t, s.uidsOfRole("prefill")[child+"-1"] == prefill[child+"-1"], "another group was recreated")

	s.changeRoles("a", func(set *dsv1.DisaggregatedSet) {
		delete(set.Annotations, dsv1.RestartPolicyAnnotationKey)
		delete(set.Annotations, dsv1.RestartPartnersAnnotationKey)
	})
	s.awaitTraffic(trafficWithin, "no leader has the label without the policy")
	since = bed.Position()
	s.crash(child+"-1-1", 1)
	s.Until("the group is another one", func() bool {
		now := s.uidsOfRole("prefill")[child+"-1"]
		return now != "" && now != prefill[child+"-1"]
	})
	s.awaitRoles(set)
	outlast(t)
	expect.That(t, maps.Equal(decode, s.uidsOfRole("decode")), "pods of the other role were recreated")
	for _, write := range s.LockstepWrote(since) {
		expect.That(t, !strings.Contains(write.URI, "/pods/"+strings.TrimSuffix(child, "prefill")+"decode"), "a write on the other role: %s", write)
	}
}

// A Hash group that failed has another key, under which the set knows it.
func TestPartnersGetNoTrafficWhileAHashGroupIsDown(t *testing.T) {
	s := newScene(t)
	hash := func(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }
	set := s.rolesSet("a", s.roleOf("prefill", 2, 2, imageA, hash, s.lingering(2*time.Second)), s.roleOf("decode", 1, 1, imageA))
	set.Annotations = map[string]string{dsv1.RestartPolicyAnnotationKey: dsv1.FencePartners}
	s.settledRoles(set)
	s.awaitTraffic(drill.Patience, "all leaders have the label", "prefill", "decode")
	before, decode := s.uidsOfRole("prefill"), s.uidsOfRole("decode")
	pods := s.Pods()
	s.crash(pods[slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.Labels[lwsv1.WorkerIndexLabelKey] == "1" })].Name, 1)
	s.Within(trafficWithin, "the leader of the partner loses the label", func() error {
		return drill.Lacking("label", "", s.Pod(slices.Collect(maps.Keys(decode))[0]).Labels[dsv1.ReadyForTrafficLabelKey])
	})
	s.Until("the group is another one", func() bool {
		now := s.uidsOfRole("prefill")
		return len(now) == 4 && !maps.Equal(before, now)
	})
	s.awaitTraffic(drill.Patience, "all leaders have it again", "prefill", "decode")
	expect.That(t, maps.Equal(decode, s.uidsOfRole("decode")), "the partner was recreated")
}
