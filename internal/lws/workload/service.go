package workload

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// SharedService is the headless Service of all pods of a set.
func SharedService(set *lwsv1.LeaderWorkerSet) *corev1.Service {
	return headlessService(set, set.Name, OwnedBySet(set), map[string]string{lwsv1.SetNameLabelKey: set.Name})
}

// GroupService is the headless Service of one group. The leader owns it.
func GroupService(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) *corev1.Service {
	return headlessService(set, HostName(leader), OwnedByLeader(leader), map[string]string{
		lwsv1.SetNameLabelKey:    set.Name,
		lwsv1.GroupIndexLabelKey: groupSelector(set.Name, leader)[lwsv1.GroupIndexLabelKey],
	})
}

// headlessService publishes addresses of pods that are not ready: the pods of a group must
// find each other in order to become ready.
func headlessService(set *lwsv1.LeaderWorkerSet, name string, owners []metav1.OwnerReference, selector map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			Name:            name,
			Labels:          map[string]string{lwsv1.SetNameLabelKey: set.Name},
			OwnerReferences: owners,
		},
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			PublishNotReadyAddresses: true,
			Selector:                 selector,
		},
	}
}

// HasOwnService reports whether a pod was created with a subdomain of its group.
func HasOwnService(pod *corev1.Pod) bool {
	return pod.Annotations[lwsv1.SubdomainPolicyAnnotationKey] == string(lwsv1.SubdomainUniquePerReplica)
}
