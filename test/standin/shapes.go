package standin

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const tpu = "google.com/tpu"

// Leaders returns the leader StatefulSet of a set, with a change if it is not nil.
func Leaders(set *lwsv1.LeaderWorkerSet, key string, partition, replicas int32, change Change) *appsv1.StatefulSet {
	body := set.Spec.LeaderWorkerTemplate
	template := body.WorkerTemplate.DeepCopy()
	if body.LeaderTemplate != nil {
		template = body.LeaderTemplate.DeepCopy()
	}
	selector := map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.WorkerIndexLabelKey: "0"}
	template.Labels = union(template.Labels, selector, map[string]string{lwsv1.RevisionKey: key})
	template.Annotations = union(template.Annotations, placement(set))
	if perReplica(set) {
		template.Annotations[lwsv1.SubdomainPolicyAnnotationKey] = "UniquePerReplica"
	}
	unavailable := intstr.FromInt32(max(1, budget(set)))
	sts := &appsv1.StatefulSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name,
			Labels:          union(set.Labels, map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key}),
			Annotations:     union(set.Annotations, map[string]string{lwsv1.ReplicasAnnotationKey: strconv.Itoa(int(*set.Spec.Replicas))}),
			OwnerReferences: controlled(lwsv1.GroupVersion.String(), "LeaderWorkerSet", set),
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: set.Name, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: selector}, Template: *template,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type:          appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition, MaxUnavailable: &unavailable},
			},
			VolumeClaimTemplates: claims(set), PersistentVolumeClaimRetentionPolicy: body.PersistentVolumeClaimRetentionPolicy,
		},
	}
	if change != nil {
		change(sts)
	}
	return sts
}

// Workers returns the StatefulSet of one group's workers.
func Workers(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod, domain string) *appsv1.StatefulSet {
	body := set.Spec.LeaderWorkerTemplate
	replicas := *body.Size - 1
	selector := map[string]string{lwsv1.SetNameLabelKey: set.Name}
	for _, key := range []string{lwsv1.GroupIndexLabelKey, lwsv1.GroupUniqueHashLabelKey} {
		selector[key] = leader.Labels[key]
	}
	labels := union(selector, map[string]string{lwsv1.RevisionKey: leader.Labels[lwsv1.RevisionKey]})
	template := body.WorkerTemplate.DeepCopy()
	template.Labels = union(template.Labels, labels)
	template.Annotations = union(template.Annotations, placement(set), map[string]string{lwsv1.LeaderPodNameAnnotationKey: leader.Name})
	if _, devices := leader.Spec.Containers[0].Resources.Limits[tpu]; devices {
		template.Annotations[lwsv1.LeaderRequestsTPUsAnnotationKey] = "true"
	}
	if domain != "" {
		template.Spec.NodeSelector = union(template.Spec.NodeSelector, map[string]string{set.Annotations[lwsv1.ExclusiveKeyAnnotationKey]: domain})
	}
	serviceName := set.Name
	if perReplica(set) {
		serviceName = leader.Name
	}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: leader.Name, Labels: union(set.Labels, labels), Annotations: union(set.Annotations),
			OwnerReferences: controlled("v1", "Pod", leader),
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: serviceName, PodManagementPolicy: appsv1.ParallelPodManagement,
			Ordinals: &appsv1.StatefulSetOrdinals{Start: 1}, Selector: &metav1.LabelSelector{MatchLabels: selector}, Template: *template,
			VolumeClaimTemplates: claims(set), PersistentVolumeClaimRetentionPolicy: body.PersistentVolumeClaimRetentionPolicy,
		},
	}
}

// AsOf011 changes a StatefulSet to what version 0.11 writes: it labels the role of the pods, and tells workers the
// address of their leader.
func AsOf011(sts *appsv1.StatefulSet) {
	if sts.Spec.Ordinals == nil {
		sts.Labels[lwsv1.RoleLabelKey] = lwsv1.LeaderRole
		return
	}
	sts.Labels[lwsv1.RoleLabelKey] = lwsv1.WorkerRole
	leader := sts.Spec.Template.Annotations[lwsv1.LeaderPodNameAnnotationKey]
	sts.Spec.Template.Annotations[lwsv1.LeaderAddressAnnotationKey] = leader + "." + sts.Spec.ServiceName + "." + sts.Namespace
}

// placement returns the annotations that leaders and workers have in common.
func placement(set *lwsv1.LeaderWorkerSet) map[string]string {
	notes := map[string]string{lwsv1.SizeAnnotationKey: strconv.Itoa(int(*set.Spec.LeaderWorkerTemplate.Size))}
	if topology := set.Annotations[lwsv1.ExclusiveKeyAnnotationKey]; topology != "" {
		notes[lwsv1.ExclusiveKeyAnnotationKey] = topology
	}
	policy := set.Spec.LeaderWorkerTemplate.SubGroupPolicy
	if policy == nil {
		return notes
	}
	notes[lwsv1.SubGroupSizeAnnotationKey] = strconv.Itoa(int(*policy.SubGroupSize))
	if policy.Type != nil {
		notes[lwsv1.SubGroupPolicyTypeAnnotationKey] = string(*policy.Type)
	}
	if topology := set.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey]; topology != "" {
		notes[lwsv1.SubGroupExclusiveKeyAnnotationKey] = topology
	}
	return notes
}

// claims returns the volumeClaimTemplates with only the fields that the reference implementation copies.
func claims(set *lwsv1.LeaderWorkerSet) []corev1.PersistentVolumeClaim {
	var reduced []corev1.PersistentVolumeClaim
	for _, claim := range set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates {
		reduced = append(reduced, corev1.PersistentVolumeClaim{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: claim.Name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: claim.Spec.AccessModes, StorageClassName: claim.Spec.StorageClassName,
				VolumeMode: claim.Spec.VolumeMode, Resources: claim.Spec.Resources,
			},
		})
	}
	return reduced
}

func service(set *lwsv1.LeaderWorkerSet, name string, selector map[string]string, owners []metav1.OwnerReference) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name}, OwnerReferences: owners,
		},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: selector},
	}
}

func perReplica(set *lwsv1.LeaderWorkerSet) bool {
	network := set.Spec.NetworkConfig
	return network != nil && network.SubdomainPolicy != nil && *network.SubdomainPolicy == lwsv1.SubdomainUniquePerReplica
}

// budget returns how many leaders may be down: maxUnavailable plus maxSurge.
func budget(set *lwsv1.LeaderWorkerSet) int32 {
	rolling := set.Spec.RolloutStrategy.RollingUpdateConfiguration
	if rolling == nil {
		return 1
	}
	unavailable, _ := intstr.GetScaledValueFromIntOrPercent(&rolling.MaxUnavailable, int(*set.Spec.Replicas), false)
	surge, _ := intstr.GetScaledValueFromIntOrPercent(&rolling.MaxSurge, int(*set.Spec.Replicas), true)
	return int32(unavailable) + min(int32(surge), *set.Spec.Replicas)
}

func union(parts ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

// Levels of the PodGroups of a set: one for all of its pods, or one for each group.
const (
	WholeSet  = "lws"
	EachGroup = "replica"
)

// AsScheduled changes a StatefulSet to what version 0.11 writes where pods are in PodGroups. Leaders name the Workload of
// their set. Workers name that of their leader: the webhook may have added to it.
func AsScheduled(level, workload string) Change {
	return func(sts *appsv1.StatefulSet) {
		AsOf011(sts)
		sts.Spec.Template.Annotations[lwsv1.WorkloadSchedulingAnnotationKey] = level
		sts.Spec.Template.Annotations[lwsv1.WorkloadNameAnnotationKey] = workload
	}
}

// WorkloadName is the name of the Workload of a set.
func WorkloadName(set *lwsv1.LeaderWorkerSet) string {
	hash := fnv.New32a()
	fmt.Fprint(hash, dump.ForHash(set.UID))
	return set.Name + "-" + rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
}

// Describe creates the Workload of a set whose PodGroups are gangs, and at level WholeSet the PodGroup of all its pods.
func (o *Other) Describe(ctx context.Context, set *lwsv1.LeaderWorkerSet, level string) error {
	workload := &schedulingv1beta1.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: WorkloadName(set), Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name},
			OwnerReferences: controlled(lwsv1.GroupVersion.String(), "LeaderWorkerSet", set),
		},
		Spec: schedulingv1beta1.WorkloadSpec{
			ControllerRef:     &schedulingv1beta1.TypedLocalObjectReference{APIGroup: lwsv1.GroupVersion.Group, Kind: "LeaderWorkerSet", Name: set.Name},
			PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{{Name: level, SchedulingPolicy: gangOf(set, level)}},
		},
	}
	if err := o.client.Create(ctx, workload); err != nil || level != WholeSet {
		return err
	}
	return o.group(ctx, set, level, workload.Name+"-"+level, nil)
}

// DescribeGroup creates the PodGroup of a leader and its workers. It comes after the leader, whose name of the Workload
// it needs.
func (o *Other) DescribeGroup(ctx context.Context, set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) error {
	labels := map[string]string{
		lwsv1.GroupIndexLabelKey: leader.Labels[lwsv1.GroupIndexLabelKey], lwsv1.RevisionKey: leader.Labels[lwsv1.RevisionKey],
	}
	name := leader.Annotations[lwsv1.WorkloadNameAnnotationKey] + "-" + labels[lwsv1.GroupIndexLabelKey] + "-" + labels[lwsv1.RevisionKey]
	return o.group(ctx, set, EachGroup, name, labels)
}

// gangOf is the policy of a PodGroup of a level: it waits for all pods of the PodGroup.
func gangOf(set *lwsv1.LeaderWorkerSet, level string) schedulingv1beta1.PodGroupSchedulingPolicy {
	pods := *set.Spec.LeaderWorkerTemplate.Size
	if level == WholeSet {
		pods *= *set.Spec.Replicas
	}
	return schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: pods}}
}

// group creates a PodGroup of a set whose Workload exists. Its labels include more.
func (o *Other) group(ctx context.Context, set *lwsv1.LeaderWorkerSet, level, name string, more map[string]string) error {
	var workload schedulingv1beta1.Workload
	if err := o.client.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: WorkloadName(set)}, &workload); err != nil {
		return err
	}
	labels := map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.SchedulingLevelLabelKey: level}
	maps.Copy(labels, more)
	return o.client.Create(ctx, &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, Labels: labels,
			OwnerReferences: append(controlled(lwsv1.GroupVersion.String(), "LeaderWorkerSet", set), metav1.OwnerReference{
				APIVersion: schedulingv1beta1.SchemeGroupVersion.String(), Kind: "Workload", Name: workload.Name, UID: workload.UID,
			}),
		},
		Spec: schedulingv1beta1.PodGroupSpec{
			WorkloadRef:      &schedulingv1beta1.WorkloadReference{WorkloadName: workload.Name, TemplateName: level},
			SchedulingPolicy: gangOf(set, level),
		},
	})
}
