package workload

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

// Placements are the annotations that place groups in a topology. The leaders' template
// has them, and a revision has not.
var Placements = []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey}

// LeadersPlacement is the value of a placement in the leaders' template: the set's, or else
// what the user wrote into that template, where it is part of the revision.
func LeadersPlacement(set *lwsv1.LeaderWorkerSet, key string) string {
	return cmp.Or(templateAnnotations(set, set)[key], WrittenForLeaders(set).Annotations[key])
}

// SharedPlacement is the value of a placement that workers share with their leader, or empty: that of the leader,
// whatever the set says since. A placement that the user wrote into the leaders' template places leaders alone.
func SharedPlacement(set, restored *lwsv1.LeaderWorkerSet, leader *corev1.Pod, key string) string {
	placed := leader.Annotations[key]
	if placed == WrittenForLeaders(restored).Annotations[key] && placed != set.Annotations[key] {
		return ""
	}
	return placed
}

// LeftBehind reports whether a leader was created from another template than its StatefulSet has now, by the revision
// hash of both. Until the StatefulSet controller has seen the present template, the placement of the leader decides.
func LeftBehind(sts *appsv1.StatefulSet, leader *corev1.Pod) bool {
	if sts == nil || leader.Labels[appsv1.ControllerRevisionHashLabelKey] == "" || sts.Status.ObservedGeneration == 0 {
		return false
	}
	if Observed(sts) {
		return leader.Labels[appsv1.ControllerRevisionHashLabelKey] != sts.Status.UpdateRevision
	}
	return slices.ContainsFunc(Placements, func(key string) bool {
		return leader.Annotations[key] != sts.Spec.Template.Annotations[key]
	})
}

// Topology is the node label that a leader was placed by, or empty.
func Topology(leader *corev1.Pod) string {
	return leader.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
}

// Condition returns the condition of a type of a pod, or one without a status.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) (found corev1.PodCondition) {
	if i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind }); i >= 0 {
		return pod.Status.Conditions[i]
	}
	return found
}

// Unschedulable reports whether the scheduler found no node for a pod.
func Unschedulable(pod *corev1.Pod) bool {
	scheduled := Condition(pod, corev1.PodScheduled)
	return scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable
}

// GangGroup describes a group to the gang scheduler. Size and templates are those of the leader's revision: a gang
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
