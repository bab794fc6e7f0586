package workload

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

// tpuResource is the resource whose request by a leader its workers must know of.
const tpuResource corev1.ResourceName = "google.com/tpu"

// LeaderStatefulSet is the StatefulSet of the leaders of a set.
func LeaderStatefulSet(set *lwsv1.LeaderWorkerSet, key string, replicas, partition int32) *appsv1.StatefulSet {
	budget := intstr.FromInt32(MaxUnavailable(set))
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			Name:            set.Name,
			Labels:          labels.Merge(set.Labels, labels.Set{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key}),
			Annotations:     labels.Merge(copied(set), labels.Set{lwsv1.ReplicasAnnotationKey: strconv.Itoa(int(Replicas(set)))}),
			OwnerReferences: OwnedBySet(set),
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &replicas,
			ServiceName:         set.Name,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: LeaderSelector(set.Name)},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type:          appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition, MaxUnavailable: &budget},
			},
			Template:                             leaderTemplate(set, key),
			VolumeClaimTemplates:                 ClaimTemplates(set.Namespace, set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates),
			PersistentVolumeClaimRetentionPolicy: retention(set),
		},
	}
}

// WrittenForLeaders is the user's template of leaders.
func WrittenForLeaders(set *lwsv1.LeaderWorkerSet) *corev1.PodTemplateSpec {
	return cmp.Or(set.Spec.LeaderWorkerTemplate.LeaderTemplate, &set.Spec.LeaderWorkerTemplate.WorkerTemplate)
}

func leaderTemplate(set *lwsv1.LeaderWorkerSet, key string) corev1.PodTemplateSpec {
	template := *WrittenForLeaders(set)
	annotations := templateAnnotations(set, set)
	if Subdomain(set) == lwsv1.SubdomainUniquePerReplica {
		annotations[lwsv1.SubdomainPolicyAnnotationKey] = string(lwsv1.SubdomainUniquePerReplica)
	}
	template.Labels = labels.Merge(template.Labels, labels.Merge(LeaderSelector(set.Name), labels.Set{lwsv1.RevisionKey: key}))
	template.Annotations = labels.Merge(template.Annotations, annotations)
	return template
}

// WorkerStatefulSet is the StatefulSet of the workers of one group. The group's template
// comes from restored, the set at the leader's revision; the rest comes from the live set.
func WorkerStatefulSet(set, restored *lwsv1.LeaderWorkerSet, leader *corev1.Pod, nodeSelector map[string]string) *appsv1.StatefulSet {
	selector := groupSelector(set.Name, leader)
	own := labels.Merge(selector, labels.Set{lwsv1.RevisionKey: leader.Labels[lwsv1.RevisionKey]})
	role := labels.Set{lwsv1.RoleLabelKey: lwsv1.WorkerRole}
	replicas, service := Size(restored)-1, restored.Name
	if Subdomain(restored) == lwsv1.SubdomainUniquePerReplica {
		service = HostName(leader)
	}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			Name:            HostName(leader),
			Labels:          labels.Merge(set.Labels, labels.Merge(own, role)),
			Annotations:     workerAnnotations(set, leader),
			OwnerReferences: OwnedByLeader(leader),
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas:                             &replicas,
			ServiceName:                          service,
			PodManagementPolicy:                  appsv1.ParallelPodManagement,
			Ordinals:                             &appsv1.StatefulSetOrdinals{Start: 1},
			Selector:                             &metav1.LabelSelector{MatchLabels: selector},
			Template:                             workerTemplate(set, restored, leader, own, service, nodeSelector),
			VolumeClaimTemplates:                 ClaimTemplates(set.Namespace, restored.Spec.LeaderWorkerTemplate.VolumeClaimTemplates),
			PersistentVolumeClaimRetentionPolicy: retention(restored),
		},
	}
}

// copied are the annotations of the set that its StatefulSets have too: those that users set. Counts
// of another implementation change with each failure, and concern the set alone.
func copied(set *lwsv1.LeaderWorkerSet) map[string]string {
	annotations := labels.Merge(set.Annotations, nil)
	delete(annotations, lwsv1.GroupRestartCountsAnnotationKey)
	return annotations
}

// workerAnnotations are those of the set, and the policy that it would say after its end.
func workerAnnotations(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) map[string]string {
	annotations := copied(set)
	delete(annotations, lwsv1.PodTerminationPolicyAnnotationKey) // the field of the set is its policy
	if policy := WrittenPolicy(set, leader); policy != "" {
		annotations[lwsv1.PodTerminationPolicyAnnotationKey] = policy
	}
	return annotations
}

func workerTemplate(set, restored *lwsv1.LeaderWorkerSet, leader *corev1.Pod, own map[string]string, service string, nodeSelector map[string]string) corev1.PodTemplateSpec {
	template := restored.Spec.LeaderWorkerTemplate.WorkerTemplate
	annotations := templateAnnotations(set, restored)
	for _, key := range Placements { // workers follow their leader, whatever the set says since
		delete(annotations, key)
		if topology := SharedPlacement(set, restored, leader, key); topology != "" {
			annotations[key] = topology
		}
	}
	annotations[lwsv1.LeaderPodNameAnnotationKey] = leader.Name
	annotations[lwsv1.LeaderAddressAnnotationKey] = HostName(leader) + "." + service + "." + leader.Namespace
	if slices.ContainsFunc(slices.Concat(leader.Spec.Containers, leader.Spec.InitContainers), func(c corev1.Container) bool { return RequestsTPU(&c) }) {
		annotations[lwsv1.LeaderRequestsTPUsAnnotationKey] = "true"
	}
	template.Labels = labels.Merge(template.Labels, own)
	template.Annotations = labels.Merge(template.Annotations, annotations)
	placeInGang(&template, leader)
	if len(nodeSelector) > 0 {
		template.Spec.NodeSelector = labels.Merge(template.Spec.NodeSelector, nodeSelector)
	}
	return template
}

// templateAnnotations are those that leaders and workers have in common: sizes and
// subgroups from the restored set, placement from the live one.
func templateAnnotations(set, restored *lwsv1.LeaderWorkerSet) map[string]string {
	annotations := map[string]string{
		lwsv1.SizeAnnotationKey:         strconv.Itoa(int(Size(restored))),
		lwsv1.ExclusiveKeyAnnotationKey: set.Annotations[lwsv1.ExclusiveKeyAnnotationKey],
	}
	if policy := restored.Spec.LeaderWorkerTemplate.SubGroupPolicy; policy != nil {
		kind := ptr.Deref(policy.Type, lwsv1.SubGroupPolicyTypeLeaderWorker)
		annotations[lwsv1.SubGroupPolicyTypeAnnotationKey] = string(kind)
		annotations[lwsv1.SubGroupSizeAnnotationKey] = strconv.Itoa(int(ptr.Deref(policy.SubGroupSize, 1)))
		annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey] = set.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey]
	}
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
	return annotations
}

// ClaimTemplates reduces volumeClaimTemplates to the fields that a set may choose. The shape, namespace included, is
// that of StatefulSets that run: the templates are immutable, and the API server would refuse any other shape for ever.
func ClaimTemplates(namespace string, claims []corev1.PersistentVolumeClaim) (reduced []corev1.PersistentVolumeClaim) {
	for i := range claims {
		reduced = append(reduced, claimTemplate(namespace, &claims[i], claims[i].Spec.VolumeMode))
	}
	return reduced
}

func claimTemplate(namespace string, claim *corev1.PersistentVolumeClaim, mode *corev1.PersistentVolumeMode) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Namespace: namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      claim.Spec.AccessModes,
			StorageClassName: claim.Spec.StorageClassName,
			VolumeMode:       mode,
			Resources:        corev1.VolumeResourceRequirements{Requests: claim.Spec.Resources.Requests, Limits: claim.Spec.Resources.Limits},
		},
	}
}

// SameClaimTemplates reports whether two lists of volumeClaimTemplates mean the same to a StatefulSet: the API server
// fills in a volume mode, and earlier versions left out what is implied.
func SameClaimTemplates(one, other []corev1.PersistentVolumeClaim) bool {
	return slices.EqualFunc(one, other, func(a, b corev1.PersistentVolumeClaim) bool {
		return equality.Semantic.DeepEqual(meant(&a), meant(&b))
	})
}

func meant(claim *corev1.PersistentVolumeClaim) corev1.PersistentVolumeClaim {
	return claimTemplate("", claim, new(ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)))
}

// RetainPVCs is the retention policy of every StatefulSet of a set that has one. The operator itself deletes PVCs.
func RetainPVCs() *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	const retain = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	return &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: retain, WhenScaled: retain}
}

func retention(set *lwsv1.LeaderWorkerSet) *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	if set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy == nil {
		return nil
	}
	return RetainPVCs()
}

// RequestsTPU reports whether a container requests TPUs.
func RequestsTPU(container *corev1.Container) bool {
	limit, request := container.Resources.Limits[tpuResource], container.Resources.Requests[tpuResource]
	return !limit.IsZero() || !request.IsZero()
}

// PodsOf is the number of pods that a StatefulSet is to have.
func PodsOf(sts *appsv1.StatefulSet) int32 { return ptr.Deref(sts.Spec.Replicas, 1) }

// LacksPods reports whether a StatefulSet has fewer pods than it is to have.
func LacksPods(sts *appsv1.StatefulSet) bool { return sts.Status.Replicas < PodsOf(sts) }

// Observed reports whether the StatefulSet controller has seen the present spec and named its revision.
func Observed(sts *appsv1.StatefulSet) bool {
	return sts.Status.ObservedGeneration == sts.Generation && sts.Status.UpdateRevision != ""
}

// AnnotatedWorkers is the number of workers that the pods of a worker StatefulSet know of, and whether they know it.
func AnnotatedWorkers(sts *appsv1.StatefulSet) (workers int32, known bool) {
	size := annotatedSize(sts.Spec.Template.Annotations)
	return size - 1, size > 0
}

// placeInGang places workers together with their leader.
func placeInGang(template *corev1.PodTemplateSpec, leader *corev1.Pod) {
	if gang.IsHanded(leader) {
		gang.Follow(&template.ObjectMeta, leader)
	} else if gang.IsTied(leader) {
		gang.Tie(&template.ObjectMeta, gang.NameOf(leader))
	}
}
