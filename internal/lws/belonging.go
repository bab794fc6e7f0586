package lws

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// The functions below tell whether an object nobody controls is ours by its
// labels, and so an orphan to adopt. They say nothing of objects that have a
// controller: those are judged by UID alone.

// BearsName tells whether the object bears the set's name as a label.
func BearsName(object metav1.Object, setName string) bool {
	return object.GetLabels()[lwsv1.SetNameLabelKey] == setName
}

// IsLeader tells whether a pod bears the labels of a leader of the set.
func IsLeader(pod *corev1.Pod, setName string) bool {
	return BearsName(pod, setName) && pod.Labels[lwsv1.WorkerIndexLabelKey] == leaderWorkerIndex
}

// IsWorker reports whether a pod has the labels of a worker of the set.
func IsWorker(pod *corev1.Pod, setName string) bool {
	return BearsName(pod, setName)
}

// IsLeaderStatefulSet tells whether a StatefulSet could be the set's own: its
// labels, and the selector that cannot be changed, are those of one.
func IsLeaderStatefulSet(sts *appsv1.StatefulSet, set *lwsv1.LeaderWorkerSet) bool {
	return BearsName(sts, set.Name) && selects(sts, leaderSelector(set.Name))
}

// IsWorkerStatefulSet reports whether a StatefulSet without a controller is that of the
// group's workers: its labels and its immutable selector say so, and it is at the
// revision of the leader. A leader that was deleted with --cascade=orphan may have left
// workers of another revision: these are foreign.
func IsWorkerStatefulSet(sts *appsv1.StatefulSet, set *lwsv1.LeaderWorkerSet, g Group) bool {
	return g.Leader != nil && BearsName(sts, set.Name) && sts.Labels[lwsv1.RevisionKey] != "" &&
		sts.Labels[lwsv1.RevisionKey] == g.Leader.Labels[lwsv1.RevisionKey] &&
		selects(sts, groupSelector(set.Name, g))
}

func selects(sts *appsv1.StatefulSet, labels map[string]string) bool {
	selector := sts.Spec.Selector
	return selector != nil && len(selector.MatchExpressions) == 0 && equality.Semantic.DeepEqual(selector.MatchLabels, labels)
}
