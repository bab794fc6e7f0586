package cluster

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const imageC = "registry.example/serve:c"

// neverReady gives a role a template whose groups are never ready.
func neverReady(role *dsv1.DisaggregatedRole) {
	role.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = imageB
	metav1.SetMetaDataAnnotation(&role.Spec.LeaderWorkerTemplate.WorkerTemplate.ObjectMeta, "local.lockstep.dev/ready-after", "1h")
}

// repaired gives all roles a template whose groups are ready.
func repaired(set *dsv1.DisaggregatedSet) {
	for i := range set.Spec.Roles {
		template := &set.Spec.Roles[i].Spec.LeaderWorkerTemplate.WorkerTemplate
		template.Annotations = nil
		template.Spec.Containers[0].Image = imageC
	}
}

// A template that is never ready is repaired by the next one: neither the first of a set nor one in mid-rollout holds the room.
func TestATemplateThatIsNeverReadyIsRepaired(t *testing.T) {
	never := func(s *scene, image string) func() bool {
		return func() bool {
			return len(s.uidsOf(image)) > 0 && !slices.ContainsFunc(s.Pods(), func(pod *corev1.Pod) bool {
				return imageOf(pod) == image && pod.Labels[dsv1.RoleLabelKey] == "prefill" && drill.PodReady(pod)
			})
		}
	}
	for name, budget := range map[string]lwsv1.RollingUpdateConfiguration{
		"surge":       {MaxUnavailable: intstr.FromInt32(0), MaxSurge: intstr.FromInt32(1)},
		"unavailable": {MaxUnavailable: intstr.FromInt32(1), MaxSurge: intstr.FromInt32(0)},
	} {
		of := func(s *scene, groups int32) *dsv1.DisaggregatedSet {
			set := s.rolesSet("a", s.roleOf("prefill", groups, 1, imageA), s.roleOf("decode", groups, 1, imageA))
			for i := range set.Spec.Roles {
				set.Spec.Roles[i].Spec.RolloutStrategy.RollingUpdateConfiguration = budget.DeepCopy()
			}
			return set
		}
		t.Run("the first, "+name, func(t *testing.T) {
			s := newScene(t)
			set := of(s, 2)
			neverReady(&set.Spec.Roles[0])
			s.Create(set)
			s.Until("groups of it run", never(s, imageB))
			s.awaitRoles(s.changeRoles("a", repaired))
		})
		t.Run("in mid-rollout, "+name, func(t *testing.T) {
			s := newScene(t)
			s.settledRoles(of(s, 2))
			end := s.watching()
			s.changeRoles("a", func(set *dsv1.DisaggregatedSet) { neverReady(&set.Spec.Roles[0]) })
			s.Until("groups of it run", never(s, imageB))
			s.awaitRoles(s.changeRoles("a", repaired))
			floor := 2 - budget.MaxUnavailable.IntValue()
			expect.Equal(t, map[string]int{"prefill": floor, "decode": floor}, end().least)
		})
	}
}
