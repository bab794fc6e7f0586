package admission_test

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

var (
	anyCount = rapid.OneOf(rapid.Int32(), rapid.Int32Range(-1, 12), rapid.SampledFrom([]int32{math.MinInt32, math.MaxInt32, 1000000, 1000001}))
	anyText  = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "0", "1", "2", "4", "-1", "2147483647", "99999999999", "10%", "100%", "101%", "w", "w-0"}))
)

func optional[T any](value *rapid.Generator[T]) *rapid.Generator[*T] {
	return rapid.Custom(func(t *rapid.T) *T {
		if rapid.Bool().Draw(t, "absent") {
			return nil
		}
		return ptr.To(value.Draw(t, "value"))
	})
}

var anyIntOrString = rapid.OneOf(
	rapid.Map(anyCount, intstr.FromInt32),
	rapid.Map(anyText, intstr.FromString),
)

var anySet = rapid.Custom(func(t *rapid.T) *lwsv1.LeaderWorkerSet {
	set := newSet(withName(anyText.Draw(t, "name")))
	set.Annotations = rapid.MapOf(rapid.SampledFrom(topologies), anyText).Draw(t, "annotations")
	spec, template := &set.Spec, &set.Spec.LeaderWorkerTemplate
	spec.Replicas = optional(anyCount).Draw(t, "replicas")
	template.Size = optional(anyCount).Draw(t, "size")
	template.RestartPolicy = lwsv1.RestartPolicyType(anyText.Draw(t, "restart policy"))
	spec.RolloutStrategy.RollingUpdateConfiguration = optional(anyRollingUpdate).Draw(t, "rolling update")
	template.SubGroupPolicy = optional(anySubgroups).Draw(t, "subgroups")
	spec.NetworkConfig = optional(anyNetwork).Draw(t, "network")
	template.LeaderTemplate = optional(anyTemplate).Draw(t, "leaders")
	template.WorkerTemplate = anyTemplate.Draw(t, "workers")
	return set
})

var topologies = []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey}

var anyRollingUpdate = rapid.Custom(func(t *rapid.T) lwsv1.RollingUpdateConfiguration {
	return lwsv1.RollingUpdateConfiguration{
		Partition:      optional(anyCount).Draw(t, "partition"),
		MaxUnavailable: anyIntOrString.Draw(t, "unavailable"),
		MaxSurge:       anyIntOrString.Draw(t, "surge"),
	}
})

var anySubgroups = rapid.Custom(func(t *rapid.T) lwsv1.SubGroupPolicy {
	return lwsv1.SubGroupPolicy{
		Type: optional(rapid.SampledFrom([]lwsv1.SubGroupPolicyType{
			"", lwsv1.SubGroupPolicyTypeLeaderWorker, lwsv1.SubGroupPolicyTypeLeaderExcluded,
		})).Draw(t, "type"),
		SubGroupSize: optional(anyCount).Draw(t, "size"),
	}
})

var anyNetwork = rapid.Custom(func(t *rapid.T) lwsv1.NetworkConfig {
	return lwsv1.NetworkConfig{SubdomainPolicy: optional(rapid.Map(anyText, func(s string) lwsv1.SubdomainPolicy {
		return lwsv1.SubdomainPolicy(s)
	})).Draw(t, "policy")}
})

var anyTemplate = rapid.Custom(func(t *rapid.T) corev1.PodTemplateSpec {
	pod := template("c")
	pod.Annotations = rapid.MapOf(rapid.SampledFrom([]string{lwsv1.LeaderPodNameAnnotationKey, lwsv1.SizeAnnotationKey}), anyText).Draw(t, "annotations")
	pod.Spec.RestartPolicy = rapid.SampledFrom([]corev1.RestartPolicy{"", "Always", "Never"}).Draw(t, "restart policy")
	return pod
})

func TestEverySetIsJudged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkSet(t, anySet.Draw(t, "set"), anySet.Draw(t, "old")) })
}

// An update is held to the rules of a create.
func TestNoUpdateMakesAGoodSetBad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := anySet.Draw(t, "set")
		set.Name = "w" // a name never changes
		admission.Default(set)
		if len(admission.ValidateCreate(set)) > 0 && len(admission.ValidateUpdate(set, newSet())) == 0 {
			t.Fatalf("refused as new, allowed as an update: %v", admission.ValidateCreate(set))
		}
	})
}

var anyPod = rapid.Custom(func(t *rapid.T) *corev1.Pod {
	pod := newPod(rapid.OneOf(anyText, rapid.StringMatching(`w-[0-9]{1,2}(-[1-9][0-9]{0,11})?`)).Draw(t, "name"))
	for _, key := range []string{lwsv1.WorkerIndexLabelKey, lwsv1.GroupIndexLabelKey, lwsv1.SubGroupIndexLabelKey} {
		if rapid.Bool().Draw(t, "has "+key) {
			withLabel(key, anyText.Draw(t, key))(pod)
		}
	}
	for _, key := range append(topologies, lwsv1.SizeAnnotationKey, lwsv1.SubGroupSizeAnnotationKey, lwsv1.LeaderRequestsTPUsAnnotationKey) {
		if rapid.Bool().Draw(t, "has "+key) {
			withPodAnnotation(key, anyText.Draw(t, key))(pod)
		}
	}
	if n := rapid.IntRange(0, 3).Draw(t, "TPU containers"); n > 0 {
		withTPUContainers(n)(pod)
	}
	return pod
})

func TestMutatingTwiceIsMutatingOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkMutation(t, anyPod.Draw(t, "pod")) })
}
