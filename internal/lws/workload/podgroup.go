package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

// GangGroup is what the gang scheduler knows of a group. Size and templates are those of the leader's revision: a gang
// that waits for pods of another one would never start. A group whose workers wait for the leader, to be ready or to be
// placed, starts with the leader alone.
func GangGroup(set, restored *lwsv1.LeaderWorkerSet, leader *corev1.Pod) gang.Group {
	together := Size(restored)
	if set.Spec.StartupPolicy == lwsv1.LeaderReadyStartupPolicy || SharedPlacement(set, restored, leader, lwsv1.ExclusiveKeyAnnotationKey) != "" {
		together = 1
	}
	return gang.Group{
		Namespace:    set.Namespace,
		Name:         gang.NameOf(leader),
		Labels:       gangLabels(leader),
		Annotations:  set.Annotations,
		Owners:       OwnedByLeader(leader),
		MinMember:    together,
		MinResources: gang.Resources(WrittenForLeaders(restored), &restored.Spec.LeaderWorkerTemplate.WorkerTemplate, Size(restored)),
	}
}

func gangLabels(leader *corev1.Pod) map[string]string {
	group := map[string]string{}
	for _, key := range []string{lwsv1.SetNameLabelKey, lwsv1.GroupIndexLabelKey, lwsv1.RevisionKey} {
		group[key] = leader.Labels[key]
	}
	return group
}

// IsGang reports whether an object without a controller has the labels of the leader's group.
func IsGang(object metav1.Object, leader *corev1.Pod) bool {
	return labels.SelectorFromSet(gangLabels(leader)).Matches(labels.Set(object.GetLabels()))
}

// AreApart reports whether workers belong to another Workload than their leader: neither PodGroup would ever have all of
// its pods.
func AreApart(leader *corev1.Pod, workers *appsv1.StatefulSet) bool {
	return gang.IsHanded(leader) && gang.WorkloadOf(&workers.Spec.Template) != gang.WorkloadOf(leader)
}
