package lws

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// tpuResource is the resource whose request by a leader its workers must know of.
const tpuResource corev1.ResourceName = "google.com/tpu"

// leaderStatefulSet is the StatefulSet that keeps the leaders of a set.
func leaderStatefulSet(set *lwsv1.LeaderWorkerSet, key string, replicas, partition int32) *appsv1.StatefulSet {
	template := set.Spec.LeaderWorkerTemplate
	budget := intstr.FromInt32(unavailableBudget(set))
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			Name:            set.Name,
			Labels:          merged(set.Labels, map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key}),
			Annotations:     merged(set.Annotations, map[string]string{lwsv1.ReplicasAnnotationKey: strconv.Itoa(int(Replicas(set)))}),
			OwnerReferences: ownedBySet(set),
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &replicas,
			ServiceName:         set.Name,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: leaderSelector(set.Name)},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type:          appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition, MaxUnavailable: &budget},
			},
			Template:                             leaderTemplate(set, key),
			VolumeClaimTemplates:                 claimTemplates(set.Namespace, template.VolumeClaimTemplates),
			PersistentVolumeClaimRetentionPolicy: retention(set),
		},
	}
}

// writtenForLeaders is what the user wrote of leaders.
func writtenForLeaders(set *lwsv1.LeaderWorkerSet) *corev1.PodTemplateSpec {
	if leader := set.Spec.LeaderWorkerTemplate.LeaderTemplate; leader != nil {
		return leader
	}
	return &set.Spec.LeaderWorkerTemplate.WorkerTemplate
}

func leaderTemplate(set *lwsv1.LeaderWorkerSet, key string) corev1.PodTemplateSpec {
	template := *writtenForLeaders(set)
	annotations := templateAnnotations(set, set)
	if Subdomain(set) == lwsv1.SubdomainUniquePerReplica {
		annotations[lwsv1.SubdomainPolicyAnnotationKey] = string(lwsv1.SubdomainUniquePerReplica)
	}
	labels := merged(leaderSelector(set.Name), map[string]string{lwsv1.RevisionKey: key})
	template.Labels = merged(template.Labels, labels)
	template.Annotations = merged(template.Annotations, annotations)
	return template
}

// workerStatefulSet is the StatefulSet that keeps the workers of one group. What
// the group is made of comes from restored, the set at the leader's revision;
// what belongs to the set as a whole comes from the live set.
func workerStatefulSet(set, restored *lwsv1.LeaderWorkerSet, g Group, nodeSelector map[string]string) *appsv1.StatefulSet {
	template := restored.Spec.LeaderWorkerTemplate
	selector := groupSelector(set.Name, g)
	labels := merged(selector, map[string]string{lwsv1.RevisionKey: g.Leader.Labels[lwsv1.RevisionKey]})
	replicas := Size(restored) - 1
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			Name:            g.LeaderName,
			Labels:          merged(set.Labels, labels),
			Annotations:     merged(set.Annotations, nil),
			OwnerReferences: ownedByLeader(g.Leader),
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas:                             &replicas,
			ServiceName:                          workerServiceName(restored, g),
			PodManagementPolicy:                  appsv1.ParallelPodManagement,
			Ordinals:                             &appsv1.StatefulSetOrdinals{Start: 1},
			Selector:                             &metav1.LabelSelector{MatchLabels: selector},
			Template:                             workerTemplate(set, restored, g, labels, nodeSelector),
			VolumeClaimTemplates:                 claimTemplates(set.Namespace, template.VolumeClaimTemplates),
			PersistentVolumeClaimRetentionPolicy: retention(restored),
		},
	}
}

func workerServiceName(restored *lwsv1.LeaderWorkerSet, g Group) string {
	if Subdomain(restored) == lwsv1.SubdomainUniquePerReplica {
		return g.LeaderName
	}
	return restored.Name
}

func workerTemplate(set, restored *lwsv1.LeaderWorkerSet, g Group, labels, nodeSelector map[string]string) corev1.PodTemplateSpec {
	template := restored.Spec.LeaderWorkerTemplate.WorkerTemplate
	annotations := templateAnnotations(set, restored)
	for _, placement := range placements { // workers go where their leader was sent, whatever the set says meanwhile
		delete(annotations, placement)
		if topology := shared(set, restored, g.Leader, placement); topology != "" {
			annotations[placement] = topology
		}
	}
	annotations[lwsv1.LeaderPodNameAnnotationKey] = g.LeaderName
	if requestsTPU(g.Leader) {
		annotations[lwsv1.LeaderRequestsTPUsAnnotationKey] = "true"
	}
	template.Labels = merged(template.Labels, labels)
	template.Annotations = merged(template.Annotations, annotations)
	tieWorkers(&template, g.Leader)
	if len(nodeSelector) > 0 {
		template.Spec.NodeSelector = merged(template.Spec.NodeSelector, nodeSelector)
	}
	return template
}

// templateAnnotations are those that leaders and workers have in common: sizes
// and subgroups from the restored set, placement from the live one.
func templateAnnotations(set, restored *lwsv1.LeaderWorkerSet) map[string]string {
	annotations := map[string]string{lwsv1.SizeAnnotationKey: strconv.Itoa(int(Size(restored)))}
	if topology := set.Annotations[lwsv1.ExclusiveKeyAnnotationKey]; topology != "" {
		annotations[lwsv1.ExclusiveKeyAnnotationKey] = topology
	}
	policy := restored.Spec.LeaderWorkerTemplate.SubGroupPolicy
	if policy == nil {
		return annotations
	}
	annotations[lwsv1.SubGroupPolicyTypeAnnotationKey] = string(orDefault(policy.Type, lwsv1.SubGroupPolicyTypeLeaderWorker))
	annotations[lwsv1.SubGroupSizeAnnotationKey] = strconv.Itoa(int(orDefault(policy.SubGroupSize, 1)))
	if topology := set.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey]; topology != "" {
		annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey] = topology
	}
	return annotations
}

// claimTemplates reduces claims to the fields a set may choose. The shape,
// namespace included, is that of StatefulSets already running: claim templates
// are immutable, and any other shape would be refused for ever.
func claimTemplates(namespace string, claims []corev1.PersistentVolumeClaim) []corev1.PersistentVolumeClaim {
	var reduced []corev1.PersistentVolumeClaim
	for i := range claims {
		claim := &claims[i]
		reduced = append(reduced, corev1.PersistentVolumeClaim{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Namespace: namespace},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      claim.Spec.AccessModes,
				StorageClassName: claim.Spec.StorageClassName,
				VolumeMode:       claim.Spec.VolumeMode,
				Resources:        corev1.VolumeResourceRequirements{Requests: claim.Spec.Resources.Requests, Limits: claim.Spec.Resources.Limits},
			},
		})
	}
	return reduced
}

func requestsTPU(pod *corev1.Pod) bool {
	return anyRequestsTPU(pod.Spec.Containers) || anyRequestsTPU(pod.Spec.InitContainers)
}

func anyRequestsTPU(containers []corev1.Container) bool {
	for i := range containers {
		resources := containers[i].Resources
		for _, list := range []corev1.ResourceList{resources.Limits, resources.Requests} {
			if quantity, ok := list[tpuResource]; ok && !quantity.IsZero() {
				return true
			}
		}
	}
	return false
}
