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

// MakesLeaders reports whether a StatefulSet or Deployment has the labels and the immutable selector of the one that
// makes the leaders of the set.
func MakesLeaders(object metav1.Object, selector *metav1.LabelSelector, set *lwsv1.LeaderWorkerSet) bool {
	return BearsName(object, set.Name) && isSelector(selector, LeaderSelector(set.Name))
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
	return identity.LeaderName("", max(int(Replicas(set))+int(mostSurge(set))-1, 0))
}

// mostSurge is how many surge groups a set may have: none where a DisaggregatedSet owns it, for its template never changes.
func mostSurge(set *lwsv1.LeaderWorkerSet) int32 {
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil && owner.Kind == string(identity.KindDisaggregatedSet) {
		return 0
	}
	return min(Surge(set), Replicas(set))
}

// IsNameTooLong reports whether a set has a name with which its last group never gets its pods.
func IsNameTooLong(set *lwsv1.LeaderWorkerSet) bool {
	return !HasHashIdentity(set) && len(set.Name) > NameLimit(set) // a Hash set has a limit of its own
}

// HashKey is the key of the Hash group that an object is of, or empty: two labels have it.
func HashKey(object metav1.Object) string {
	if labels := object.GetLabels(); labels[lwsv1.GroupUniqueHashLabelKey] == labels[lwsv1.GroupIndexLabelKey] {
		return labels[lwsv1.GroupUniqueHashLabelKey]
	}
	return ""
}

// IsHashLeader reports whether a pod was created as the leader of a Hash group. No
// StatefulSet makes one, whatever the template of its pods says.
func IsHashLeader(pod metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return pod.GetAnnotations()[lwsv1.GroupIdentityAnnotationKey] == string(lwsv1.HashGroupIdentity) &&
		(owner == nil || owner.Kind != string(identity.KindStatefulSet))
}

// KeyOf is the value by which the pods of a leader's group find each other. Without a label, because no
// webhook saw the leader, it follows from the name.
func KeyOf(leader metav1.Object) string {
	if key := leader.GetLabels()[lwsv1.GroupUniqueHashLabelKey]; key != "" {
		return key
	}
	return identity.GroupKey(leader.GetNamespace(), leader.GetName())
}

// Identity identifies a group within its set.
type Identity struct {
	// Index is the ordinal of the group, or that of its key.
	Index int
	// Key has the first digits of the key of a Hash group, and is empty for any other.
	Key string
	// LeaderName is the name that the leader has or would have.
	LeaderName string
}

// HasKey reports whether the group is a Hash group.
func (g Identity) HasKey() bool { return g.Key != "" }

// Name returns the name of the group in messages: its ordinal, or the first digits of its key.
func (g Identity) Name() string { return cmp.Or(g.Key, strconv.Itoa(g.Index)) }

// Of is the identity of the group of a leader, or of a worker of a Hash group.
func Of(pod metav1.Object) Identity {
	g, _, _ := called(pod)
	return g
}

// IndexOf is the index of a leader's group: its ordinal, or that of its key.
func IndexOf(leader *corev1.Pod) int { return Of(leader).Index }

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

// called returns the identity of a pod's group, the value of the label of its index, and the host name of its leader.
// Only labels and annotations say to which Hash group a pod belongs.
func called(pod metav1.Object) (g Identity, label, host string) {
	leader, key := pod.GetName(), KeyOf(pod)
	if !IsHashLeader(pod) {
		leader, key = pod.GetAnnotations()[lwsv1.LeaderPodNameAnnotationKey], HashKey(pod)
		if leader == "" || key == "" {
			index := identity.Ordinal(pod.GetName())
			return Identity{Index: index, LeaderName: pod.GetName()}, strconv.Itoa(index), pod.GetName()
		}
	}
	index := identity.HashIndex(key)
	return Identity{index, identity.IndexText(index), leader}, key, identity.HashName(pod.GetLabels()[lwsv1.SetNameLabelKey], key)
}

// ParentName is the name of what a pod belongs to: the set of a leader, or the leader of a worker.
func ParentName(pod metav1.Object) string {
	switch g := Of(pod); {
	case g.LeaderName != pod.GetName():
		return g.LeaderName
	case g.HasKey():
		return pod.GetLabels()[lwsv1.SetNameLabelKey]
	}
	parent, _ := identity.ParentAndOrdinal(pod.GetName())
	return parent
}
