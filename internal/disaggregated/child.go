package disaggregated

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Child returns the LeaderWorkerSet of a role at a place, with a number of groups. intended is how many the set wants.
func Child(set *dsv1.DisaggregatedSet, role *dsv1.DisaggregatedRole, p Place, replicas, intended int32) *lwsv1.LeaderWorkerSet {
	own := Labels(set.Name, p)
	own["app"] = set.Name + "-" + strconv.Itoa(p.Slice) + "-" + p.Role
	child := &lwsv1.LeaderWorkerSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: ChildName(set.Name, p), OwnerReferences: ownedBy(set, false),
			Labels: with(role.Metadata.Labels, own), Annotations: maps.Clone(role.Metadata.Annotations),
		},
		Spec: *role.Spec.DeepCopy(),
	}
	metav1.SetMetaDataAnnotation(&child.ObjectMeta, dsv1.InitialReplicasAnnotationKey, strconv.Itoa(int(intended)))
	child.Spec.Replicas = &replicas
	template := &child.Spec.LeaderWorkerTemplate
	for _, pods := range []*corev1.PodTemplateSpec{template.LeaderTemplate, &template.WorkerTemplate} {
		if pods == nil {
			continue
		}
		pods.Labels = with(pods.Labels, own)
		delete(pods.Labels, dsv1.ReadyForTrafficLabelKey) // a leader bears it once its group is ready
		place(set, p.Slice, &pods.Spec)
	}
	return child
}

// with returns the labels of a user, and ours in place of those with the same keys.
func with(labels, own map[string]string) map[string]string {
	all := maps.Clone(own)
	for key, value := range labels {
		if _, isOwn := own[key]; !isOwn {
			all[key] = value
		}
	}
	return all
}

// place adds the affinities of the placement policy to the pods of a slice.
func place(set *dsv1.DisaggregatedSet, slice int, pods *corev1.PodSpec) {
	policy := set.Spec.PlacementPolicy
	if policy == nil || policy.Topology == "" || policy.Type != dsv1.PlacementExclusiveSlice && policy.Type != dsv1.PlacementExclusiveTopology {
		return
	}
	is := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	index := strconv.Itoa(slice)
	ours := is(dsv1.SetNameLabelKey, metav1.LabelSelectorOpIn, set.Name)
	hasSlice := is(dsv1.SliceLabelKey, metav1.LabelSelectorOpExists)
	apart := []metav1.LabelSelectorRequirement{ours, is(dsv1.SliceLabelKey, metav1.LabelSelectorOpNotIn, index)}
	if slice == 0 { // pods without the label are of slice 0, too
		apart = slices.Insert(apart, 1, hasSlice)
	}
	if pods.Affinity == nil {
		pods.Affinity = &corev1.Affinity{}
	}
	if pods.Affinity.PodAffinity == nil {
		pods.Affinity.PodAffinity = &corev1.PodAffinity{}
	}
	if pods.Affinity.PodAntiAffinity == nil {
		pods.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	term := func(requirements ...metav1.LabelSelectorRequirement) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchExpressions: requirements}, TopologyKey: policy.Topology}
	}
	near, far := &pods.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, &pods.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*near = append(*near, term(ours, is(dsv1.SliceLabelKey, metav1.LabelSelectorOpIn, index)))
	*far = append(*far, term(apart...))
	if policy.Type == dsv1.PlacementExclusiveTopology {
		*far = append(*far, term(is(dsv1.SetNameLabelKey, metav1.LabelSelectorOpExists), is(dsv1.SetNameLabelKey, metav1.LabelSelectorOpNotIn, set.Name), hasSlice))
	}
}

// Service returns the headless Service of a child: clients of other implementations find the pods of a revision by it.
func Service(set *dsv1.DisaggregatedSet, child *lwsv1.LeaderWorkerSet) *corev1.Service {
	named := map[string]string{}
	for _, key := range []string{dsv1.SetNameLabelKey, dsv1.RoleLabelKey, dsv1.SliceLabelKey, dsv1.RevisionLabelKey} {
		if value, has := child.Labels[key]; has {
			named[key] = value
		}
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: ServiceName(child.Name), Labels: named, OwnerReferences: ownedBy(set, false),
		},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: maps.Clone(named)},
	}
}

// Scaler returns the scaler of a role.
func Scaler(set *dsv1.DisaggregatedSet, role string, replicas int32) *dsv1.DisaggregatedSetRoleScaler {
	return &dsv1.DisaggregatedSetRoleScaler{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: ScalerName(set.Name, role), OwnerReferences: ownedBy(set, true),
			Labels: map[string]string{dsv1.SetNameLabelKey: set.Name, dsv1.RoleLabelKey: role},
		},
		Spec: dsv1.DisaggregatedSetRoleScalerSpec{Replicas: replicas},
	}
}
