package gang

import (
	"cmp"
	"fmt"
	"hash/fnv"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/schedulingv1/workloadbuilder"
	"k8s.io/utils/dump"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Kubernetes is the name of Kubernetes' own scheduler in the configuration.
const Kubernetes = "kubernetes"

// The kinds that Kubernetes' own scheduler reads.
var (
	WorkloadKind       = schedulingv1beta1.SchemeGroupVersion.WithKind("Workload")
	NativePodGroupKind = schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup")
)

// WorkloadName is the name of the Workload of a set. It follows from the UID of the set: a set
// that is created anew has another Workload. Other implementations derive the same name.
func WorkloadName(set metav1.Object) string {
	hash := fnv.New32a()
	_, _ = fmt.Fprint(hash, dump.ForHash(set.GetUID())) // a hash takes all that is written
	suffix := "-" + utilrand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
	name := set.GetName()
	return name[:min(len(name), validation.DNS1123SubdomainMaxLength-len(suffix))] + suffix
}

// Workload describes the PodGroups of a set to the scheduler. The number of pods that a PodGroup
// waits for may be less for a while.
func Workload(set *lwsv1.LeaderWorkerSet) (*unstructured.Unstructured, error) {
	whole := &schedulingv1beta1.Workload{}
	for _, unit := range UnitsOf(set) {
		part, err := unit.Builder(set, nil).BuildWorkload()
		if err != nil {
			return nil, fmt.Errorf("describe the %s of set %q: %w", unit.Name, set.Name, err)
		}
		part.Spec.PodGroupTemplates = append(whole.Spec.PodGroupTemplates, part.Spec.PodGroupTemplates...)
		whole = part // but for their templates, all parts are the same
	}
	whole.Labels = map[string]string{lwsv1.SetNameLabelKey: set.Name}
	return untyped(whole, WorkloadKind)
}

// UnitsOf returns the units of a set, with all of its pods.
func UnitsOf(set *lwsv1.LeaderWorkerSet) []Unit {
	level := LevelOf(set.Spec.Scheduling)
	return Units(set.Spec.Scheduling, level, ptr.Deref(set.Spec.Replicas, 1), ptr.Deref(set.Spec.LeaderWorkerTemplate.Size, 1))
}

// Builder describes a unit of a set to the scheduler, and checks it. at is the path of spec.scheduling.
func (u *Unit) Builder(set *lwsv1.LeaderWorkerSet, at *field.Path) *workloadbuilder.Builder {
	return workloadbuilder.NewBuilder(u.item(set, at), workloadbuilder.BuildOptions{
		Name: WorkloadName(set), Namespace: set.Namespace, Owner: metav1.NewControllerRef(set, lwsv1.GroupVersion.WithKind("LeaderWorkerSet")),
		AllowedPolicies:        []workloadbuilder.SchedulingPolicyOption{workloadbuilder.BasicPolicy, workloadbuilder.GangPolicy},
		AllowedDisruptionModes: []workloadbuilder.DisruptionModeOption{workloadbuilder.SingleMode, workloadbuilder.AllMode},
	})
}

func (u *Unit) item(set *lwsv1.LeaderWorkerSet, at *field.Path) *workloadbuilder.WorkloadItem {
	for _, element := range u.Path {
		at = at.Child(element)
	}
	policy := &workloadbuilder.SchedulingPolicy{Basic: &workloadbuilder.BasicSchedulingPolicy{}}
	if u.isGang {
		policy = &workloadbuilder.SchedulingPolicy{Gang: &workloadbuilder.GangSchedulingPolicy{}}
	}
	complete := func(config *workloadbuilder.SchedulingConfig) {
		if config.Policy != nil && config.Policy.Gang != nil {
			config.Policy.Gang.MinCount = new(max(u.Members, 1))
		}
	}
	return &workloadbuilder.WorkloadItem{
		Name: u.Name, Path: at,
		DefaultConfig: &workloadbuilder.SchedulingConfig{Policy: policy, PriorityClassName: priorityClass(set)},
		Input: workloadbuilder.WorkloadInput{
			Policy:         workloadbuilder.PolicyInput{PodGroupData: u.Policy, PathElements: []string{"schedulingPolicy"}},
			Constraints:    workloadbuilder.ConstraintsInput{PodGroupData: u.Constraints, PathElements: []string{"schedulingConstraints"}},
			DisruptionMode: workloadbuilder.DisruptionModeInput{PodGroupData: u.Disruption, PathElements: []string{"disruptionMode"}},
			ResourceClaims: workloadbuilder.ResourceClaimsInput{PodGroupData: u.Claims, PathElements: []string{"resourceClaims"}},
		},
		Callbacks: []workloadbuilder.SchedulingConfigFunc{complete},
	}
}

// priorityClass is the class that all pods of a set have.
func priorityClass(set *lwsv1.LeaderWorkerSet) string {
	template := &set.Spec.LeaderWorkerTemplate
	return cmp.Or(template.LeaderTemplate, &template.WorkerTemplate).Spec.PriorityClassName
}

func untyped(object any, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(fields, "status")
	into := &unstructured.Unstructured{Object: fields}
	into.SetGroupVersionKind(kind)
	return into, nil
}
