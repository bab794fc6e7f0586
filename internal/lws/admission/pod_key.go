package admission

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// GatedDeletionCost makes a ReplicaSet delete a leader first that is not scheduled yet. It is taken
// off with the gate, unless it was changed.
const GatedDeletionCost = "-100"

// LacksKey reports whether a new leader is to get the key of its group. A further call of the webhook
// finds the key, and the host name that the first one gave with it: labels of the template alone are no key.
func LacksKey(pod *corev1.Pod) bool {
	return IsLeader(pod) && workload.IsHashLeader(pod) && (!workload.HasKey(pod) || pod.Spec.Hostname == "")
}

// SetKey gives a leader the key of its group, made from random characters. It tells groups apart and
// guards nothing.
func SetKey(leader *corev1.Pod, random string) {
	key := identity.GroupKey(leader.Namespace, random)
	metav1.SetMetaDataLabel(&leader.ObjectMeta, lwsv1.GroupIndexLabelKey, key)
	metav1.SetMetaDataLabel(&leader.ObjectMeta, lwsv1.GroupUniqueHashLabelKey, key)
}

// placeHashLeader tells a leader with a key its group. It has no name yet: its host name stands in for that. It is
// scheduled once the set has room for it.
func placeHashLeader(pod *corev1.Pod) {
	pod.Spec.Hostname = cmp.Or(pod.Spec.Hostname, workload.HostName(pod))
	if pod.Annotations[lwsv1.SubdomainPolicyAnnotationKey] == string(lwsv1.SubdomainUniquePerReplica) {
		pod.Spec.Subdomain = pod.Spec.Hostname
	}
	if _, divided := pod.Annotations[lwsv1.SubGroupSizeAnnotationKey]; divided { // those of the template are the same for all groups
		delete(pod.Labels, lwsv1.SubGroupIndexLabelKey)
		delete(pod.Labels, lwsv1.SubGroupUniqueHashLabelKey)
	}
	excludeOthers(pod)
	Gate(pod)
	if pod.Spec.NodeName == "" && pod.Annotations[corev1.PodDeletionCost] == "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.PodDeletionCost, GatedDeletionCost)
	}
}

// hostOfLeader is the host name of the leader of a pod's group that has a key. A worker knows it from the address of
// its leader.
func hostOfLeader(pod *corev1.Pod) string {
	if IsLeader(pod) {
		return pod.Spec.Hostname
	}
	host, _, _ := strings.Cut(pod.Annotations[lwsv1.LeaderAddressAnnotationKey], ".")
	return cmp.Or(host, identity.HashName(pod.Labels[lwsv1.SetNameLabelKey], pod.Labels[lwsv1.GroupUniqueHashLabelKey]))
}
