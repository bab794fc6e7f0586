package workload

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// HasKey reports whether an object is of a group that has a key instead of an ordinal: two labels
// have it.
func HasKey(object metav1.Object) bool {
	labels := object.GetLabels()
	key := labels[lwsv1.GroupUniqueHashLabelKey]
	return key != "" && key == labels[lwsv1.GroupIndexLabelKey]
}

// IsHashLeader reports whether a pod was created as the leader of a group that has a key. No
// StatefulSet makes one, whatever the template of its pods says.
func IsHashLeader(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return pod.Annotations[lwsv1.GroupIdentityAnnotationKey] == string(lwsv1.HashGroupIdentity) &&
		(owner == nil || owner.Kind != string(identity.KindStatefulSet))
}

// KeyOf is the value by which the pods of a leader's group find each other. Without a label, because no
// webhook saw the leader, it follows from the name.
func KeyOf(leader *corev1.Pod) string {
	return cmp.Or(leader.Labels[lwsv1.GroupUniqueHashLabelKey], identity.GroupKey(leader.Namespace, leader.Name))
}

// IndexOf is the index of a leader's group: its ordinal, or that of its key.
func IndexOf(leader *corev1.Pod) int {
	if IsHashLeader(leader) {
		return identity.HashIndex(KeyOf(leader))
	}
	_, index := identity.ParentAndOrdinal(leader.Name)
	return index
}

// IndexOfKey is the index of the group of a worker that has a key.
func IndexOfKey(worker *corev1.Pod) int {
	return identity.HashIndex(worker.Labels[lwsv1.GroupUniqueHashLabelKey])
}

// HostName is the host name of a leader. The worker StatefulSet of its group has that name.
func HostName(leader *corev1.Pod) string {
	if IsHashLeader(leader) {
		return identity.HashName(leader.Labels[lwsv1.SetNameLabelKey], KeyOf(leader))
	}
	return leader.Name
}

// GroupName is what people call the group of an index: its number, or the first digits of its key.
func GroupName(set *lwsv1.LeaderWorkerSet, index int) string {
	if HasHashIdentity(set) {
		return identity.IndexText(index)
	}
	return strconv.Itoa(index)
}
