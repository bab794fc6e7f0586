// Package workload builds the StatefulSets, Services and pods of a LeaderWorkerSet, and
// reads from such objects what they were built for.
//
// It is pure: it knows the contract of labels and annotations, and refuses to know which
// objects exist and when one is to be written.
package workload

import (
	"cmp"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// LeaderIndex is the worker index of a leader as a label value.
const LeaderIndex = "0"

// LeaderSelector is the selector of the leader StatefulSet.
func LeaderSelector(setName string) map[string]string {
	return map[string]string{lwsv1.SetNameLabelKey: setName, lwsv1.WorkerIndexLabelKey: LeaderIndex}
}

// groupSelector is the selector of the worker StatefulSet of a leader. Labels that the
// leader lacks, because no webhook saw it, follow from its name.
func groupSelector(setName string, leader *corev1.Pod) map[string]string {
	return map[string]string{
		lwsv1.SetNameLabelKey:         setName,
		lwsv1.GroupIndexLabelKey:      cmp.Or(leader.Labels[lwsv1.GroupIndexLabelKey], IndexLabel(leader)),
		lwsv1.GroupUniqueHashLabelKey: KeyOf(leader),
	}
}

// OwnedBySet is the ownerReference that makes a set the controller.
func OwnedBySet(set *lwsv1.LeaderWorkerSet) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(set, lwsv1.GroupVersion.WithKind(string(identity.KindLeaderWorkerSet)))}
}

// OwnedByLeader is the ownerReference that makes a leader the controller.
func OwnedByLeader(leader *corev1.Pod) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(leader, corev1.SchemeGroupVersion.WithKind(string(identity.KindPod)))}
}

// BearsName reports whether an object has the set's name as a label.
func BearsName(object metav1.Object, setName string) bool {
	return object.GetLabels()[lwsv1.SetNameLabelKey] == setName
}

// IsLeader reports whether a pod has the labels of a leader of the set.
func IsLeader(pod *corev1.Pod, setName string) bool {
	return BearsName(pod, setName) && pod.Labels[lwsv1.WorkerIndexLabelKey] == LeaderIndex
}

// IsLeaderStatefulSet reports whether a StatefulSet has the labels and the immutable
// selector of the set's leader StatefulSet.
func IsLeaderStatefulSet(sts *appsv1.StatefulSet, set *lwsv1.LeaderWorkerSet) bool {
	return BearsName(sts, set.Name) && isSelector(sts.Spec.Selector, LeaderSelector(set.Name))
}

// IsWorkerStatefulSet reports whether a StatefulSet has the labels and the immutable
// selector of the workers of a leader, and the revision of that leader. A leader that was
// deleted with --cascade=orphan may have left workers of another revision: these are foreign.
func IsWorkerStatefulSet(sts *appsv1.StatefulSet, set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) bool {
	return leader != nil && BearsName(sts, set.Name) && sts.Labels[lwsv1.RevisionKey] != "" &&
		sts.Labels[lwsv1.RevisionKey] == leader.Labels[lwsv1.RevisionKey] &&
		isSelector(sts.Spec.Selector, groupSelector(set.Name, leader))
}

func isSelector(selector *metav1.LabelSelector, labels map[string]string) bool {
	return selector != nil && len(selector.MatchExpressions) == 0 && equality.Semantic.DeepEqual(selector.MatchLabels, labels)
}

// revisionHashLength is the longest hash that the StatefulSet controller appends: ten digits, each
// replaced by one character.
const revisionHashLength = 10

// NameLimit is how many characters the name of a set may have whose groups have ordinals. The StatefulSet controller
// labels each pod with the name of its StatefulSet, a dash and a hash, and a label value has at most 63 characters.
func NameLimit(set *lwsv1.LeaderWorkerSet) int {
	return validation.LabelValueMaxLength - len("-") - revisionHashLength - len(longestSuffix(set))
}

// longestSuffix returns the longest text that the name of a StatefulSet adds to the name of its set. The last group has
// it, if groups have workers.
func longestSuffix(set *lwsv1.LeaderWorkerSet) string {
	if Size(set) < 2 {
		return ""
	}
	return identity.LeaderName("", max(int(Replicas(set))+int(min(Surge(set), Replicas(set)))-1, 0))
}

// IsNameTooLong reports whether a set has a name with which its last group never gets its pods.
func IsNameTooLong(set *lwsv1.LeaderWorkerSet) bool {
	return !HasHashIdentity(set) && len(set.Name) > NameLimit(set) // a Hash set has a limit of its own
}

// HasKey reports whether an object is of a Hash group: two labels
// have it.
func HasKey(object metav1.Object) bool {
	labels := object.GetLabels()
	key := labels[lwsv1.GroupUniqueHashLabelKey]
	return key != "" && key == labels[lwsv1.GroupIndexLabelKey]
}

// IsHashLeader reports whether a pod was created as the leader of a Hash group. No
// StatefulSet makes one, whatever the template of its pods says.
func IsHashLeader(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return pod.Annotations[lwsv1.GroupIdentityAnnotationKey] == string(lwsv1.HashGroupIdentity) &&
		(owner == nil || owner.Kind != string(identity.KindStatefulSet))
}

// KeyOf is the value by which the pods of a leader's group find each other. Without a label, because no
// webhook saw the leader, it follows from the name.
func KeyOf(leader *corev1.Pod) (key string) {
	if key = leader.Labels[lwsv1.GroupUniqueHashLabelKey]; key == "" {
		key = identity.GroupKey(leader.Namespace, leader.Name)
	}
	return key
}

// IndexOf is the index of a leader's group: its ordinal, or that of its key.
func IndexOf(leader *corev1.Pod) int {
	index, _, _ := called(leader)
	return index
}

// IndexLabel is the value of the label by which the pods of a leader's group have its index.
func IndexLabel(leader *corev1.Pod) string {
	_, label, _ := called(leader)
	return label
}

// HostName is the host name of a leader. The worker StatefulSet of its group has that name.
func HostName(leader *corev1.Pod) string {
	_, _, host := called(leader)
	return host
}

// called returns the index of a leader's group, the value of its label, and the host name of the leader.
func called(leader *corev1.Pod) (index int, label, host string) {
	if key := KeyOf(leader); IsHashLeader(leader) {
		return identity.HashIndex(key), key, identity.HashName(leader.Labels[lwsv1.SetNameLabelKey], key)
	}
	return identity.Ordinal(leader.Name), strconv.Itoa(identity.Ordinal(leader.Name)), leader.Name
}

// GroupName is what people call the group of an index: its number, or the first digits of its key.
func GroupName(set *lwsv1.LeaderWorkerSet, index int) string {
	if HasHashIdentity(set) {
		return identity.IndexText(index)
	}
	return strconv.Itoa(index)
}
