package crd_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

var anyIntOrPercent = rapid.OneOf(
	rapid.Map(rapid.Int32Range(-1, 3), intstr.FromInt32),
	rapid.Map(rapid.SampledFrom([]string{"", "abc", "1", "0%", "000%", "5%", "50%", "100%", "101%", "999999999999999999999%", "-1%", "1.5%"}), intstr.FromString),
)

func optional[T any](value *rapid.Generator[T]) *rapid.Generator[*T] {
	return rapid.Custom(func(t *rapid.T) *T {
		if rapid.IntRange(0, 2).Draw(t, "absent") == 0 {
			return nil
		}
		return ptr.To(value.Draw(t, "value"))
	})
}

// anySet draws from what both the definition and the webhook judge, on both
// sides of every border.
var anySet = rapid.Custom(func(t *rapid.T) *lwsv1.LeaderWorkerSet {
	restart := rapid.SampledFrom([]corev1.RestartPolicy{"", "", "", "Always", "Never"})
	set := &lwsv1.LeaderWorkerSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "leaderworkerset.x-k8s.io/v1", Kind: "LeaderWorkerSet"},
		ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: "ns"},
	}
	set.Spec.StartupPolicy = lwsv1.LeaderCreatedStartupPolicy
	set.Spec.Replicas = optional(rapid.SampledFrom([]int32{-1, 0, 1, 2, 10, 1000000, 1000001})).Draw(t, "replicas")
	set.Spec.RolloutStrategy.RollingUpdateConfiguration = optional(rapid.Custom(func(t *rapid.T) lwsv1.RollingUpdateConfiguration {
		return lwsv1.RollingUpdateConfiguration{
			Partition:      optional(rapid.Int32Range(-1, 2)).Draw(t, "partition"),
			MaxUnavailable: anyIntOrPercent.Draw(t, "unavailable"),
			MaxSurge:       anyIntOrPercent.Draw(t, "surge"),
		}
	})).Draw(t, "rolling update")
	template := &set.Spec.LeaderWorkerTemplate
	template.Size = optional(rapid.SampledFrom([]int32{-1, 0, 1, 2, 3, 4, 5, 6, 2148, 2147483647})).Draw(t, "size")
	template.SubGroupPolicy = optional(rapid.Custom(func(t *rapid.T) lwsv1.SubGroupPolicy {
		return lwsv1.SubGroupPolicy{
			Type:         optional(rapid.SampledFrom([]lwsv1.SubGroupPolicyType{"LeaderWorker", "LeaderExcluded"})).Draw(t, "type"),
			SubGroupSize: optional(rapid.Int32Range(-1, 5)).Draw(t, "size"),
		}
	})).Draw(t, "subgroups")
	drawIdentity(t, set)
	template.MaxGroupRestarts = optional(rapid.Int32Range(-1, 2)).Draw(t, "group restarts")
	if rapid.IntRange(0, 3).Draw(t, "restart policy given") == 0 {
		template.RestartPolicy = rapid.SampledFrom([]lwsv1.RestartPolicyType{"Default", "None", "RecreateGroupAfterStart"}).Draw(t, "restart policy")
	}
	hostname := template.WorkerTemplate.Spec.Hostname
	deadline := optional(rapid.SampledFrom([]int64{60}))
	template.WorkerTemplate.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}, Hostname: hostname, RestartPolicy: restart.Draw(t, "workers")}
	if rapid.IntRange(0, 3).Draw(t, "deadlines") == 0 {
		template.WorkerTemplate.Spec.ActiveDeadlineSeconds = deadline.Draw(t, "workers' deadline")
	}
	if rapid.Bool().Draw(t, "has leaders") {
		template.LeaderTemplate = template.WorkerTemplate.DeepCopy()
		template.LeaderTemplate.Spec.RestartPolicy = restart.Draw(t, "leaders")
		template.LeaderTemplate.Spec.ActiveDeadlineSeconds = nil
		if rapid.Bool().Draw(t, "leaders without a host name") {
			template.LeaderTemplate.Spec.Hostname = ""
		}
		if rapid.IntRange(0, 3).Draw(t, "deadlines of leaders") == 0 {
			template.LeaderTemplate.Spec.ActiveDeadlineSeconds = deadline.Draw(t, "leaders' deadline")
		}
	}
	return set
})

// drawIdentity draws an identity of groups, and what Hash refuses.
func drawIdentity(t *rapid.T, set *lwsv1.LeaderWorkerSet) {
	set.Spec.GroupIdentity = rapid.SampledFrom([]lwsv1.GroupIdentityType{"", "", "Ordinal", "Hash", "Hash"}).Draw(t, "identity")
	set.Spec.GroupReplacementPolicy = rapid.SampledFrom([]lwsv1.GroupReplacementPolicyType{"", "", "PostTermination", "Immediate"}).Draw(t, "replacement")
	template := &set.Spec.LeaderWorkerTemplate
	switch rapid.IntRange(0, 5).Draw(t, "what Hash refuses") {
	case 0:
		set.Name = strings.Repeat("w", rapid.SampledFrom([]int{43, 44, 54, 55}).Draw(t, "length of the name"))
	case 1:
		template.WorkerTemplate.Spec.Hostname = "host"
	case 2:
		template.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	}
}

// goodSet has nothing wrong with it.
var goodSet = rapid.Custom(func(t *rapid.T) *lwsv1.LeaderWorkerSet {
	for {
		set := anySet.Draw(t, "set")
		admission.Default(set)
		if len((admission.Scheduling{}).ValidateCreate(set)) == 0 {
			return set
		}
	}
})

func treeOf(t *rapid.T, set *lwsv1.LeaderWorkerSet) object {
	raw, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return parseJSON(t, raw)
}

// inBoth leaves out the length of a name, and nothing else: the scale subresource must pass the definition with
// any number of groups, so only the webhook judges it.
func inBoth(faults field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(faults, func(f *field.Error) bool { return f.Field == "metadata.name" && f.Origin == "name-length" })
}

// With the webhook or without: the same sets get in. It runs first and may
// repair; what it lets through the definition must not refuse, and what it
// refuses the definition must not let through.
func TestDefinitionAndWebhookAgreeOnNewSets(t *testing.T) {
	g := newGate(t)
	rapid.Check(t, func(rt *rapid.T) {
		set := anySet.Draw(rt, "set")
		admission.Default(set)
		byWebhook := inBoth(admission.Scheduling{}.ValidateCreate(set))
		byDefinition := g.create(t, treeOf(rt, set))
		if (len(byWebhook) == 0) != (len(byDefinition) == 0) {
			rt.Fatalf("the webhook says %v, the definition %v", byWebhook, byDefinition)
		}
	})
}

// The one door that stays open is a change of replicas under a budget that it
// rounds to nothing: the scale subresource, which no webhook sees, needs it.
func TestDefinitionAndWebhookAgreeOnUpdates(t *testing.T) {
	g := newGate(t)
	rapid.Check(t, func(rt *rapid.T) {
		old := goodSet.Draw(rt, "old")
		set := anySet.Draw(rt, "set")
		set.Name = old.Name
		if rapid.Bool().Draw(rt, "same identity") {
			set.Spec.GroupIdentity = old.Spec.GroupIdentity
		}
		if rapid.Bool().Draw(rt, "same budget") {
			set.Spec.RolloutStrategy = *old.Spec.RolloutStrategy.DeepCopy()
		}
		if rapid.Bool().Draw(rt, "same template") {
			set.Spec.LeaderWorkerTemplate = *old.Spec.LeaderWorkerTemplate.DeepCopy()
		}
		admission.Default(set)
		byWebhook := inBoth(admission.Scheduling{}.ValidateUpdate(set, old))
		byDefinition := g.update(t, treeOf(rt, set), treeOf(rt, old))
		if len(byDefinition) == 0 && len(byWebhook) == 1 && byWebhook[0].Detail == "must not be 0 when `maxSurge` is 0" &&
			cmp.Equal(set.Spec.RolloutStrategy, old.Spec.RolloutStrategy) {
			return
		}
		if (len(byWebhook) == 0) != (len(byDefinition) == 0) {
			rt.Fatalf("the webhook says %v, the definition %v", byWebhook, byDefinition)
		}
	})
}

// A set may have been stored before a rule existed. Neither refuses a change of something else.
func TestOldFaultsStopNoOtherChange(t *testing.T) {
	g := newGate(t)
	rapid.Check(t, func(rt *rapid.T) {
		old := anySet.Draw(rt, "old")
		admission.Default(old)
		set := old.DeepCopy()
		set.Labels = map[string]string{"a": "b"}
		if rapid.Bool().Draw(rt, "image") {
			set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = "new"
		}
		faults := append(inBoth(admission.Scheduling{}.ValidateUpdate(set, old)), g.update(t, treeOf(rt, set), treeOf(rt, old))...)
		if len(faults) > 0 {
			rt.Fatalf("refused: %v", faults)
		}
	})
}
