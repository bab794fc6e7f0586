package lws

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// sharedService is the headless Service that all pods of a set hang from.
func sharedService(set *lwsv1.LeaderWorkerSet) *corev1.Service {
	return headlessService(set, set.Name, ownedBySet(set), map[string]string{lwsv1.SetNameLabelKey: set.Name})
}

// groupService is the headless Service of one group. It belongs to the leader
// incarnation: it goes when the leader does.
func groupService(set *lwsv1.LeaderWorkerSet, g Group) *corev1.Service {
	return headlessService(set, g.LeaderName, ownedByLeader(g.Leader), map[string]string{
		lwsv1.SetNameLabelKey:    set.Name,
		lwsv1.GroupIndexLabelKey: labelOr(g.Leader, lwsv1.GroupIndexLabelKey, strconv.Itoa(g.Index)),
	})
}

// headlessService publishes addresses before pods are ready: the members of a
// group must find each other in order to become ready.
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
