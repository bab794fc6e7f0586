package lws

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// placements are the annotations that say where groups go. They stand in the
// template of leaders and are no part of a revision: the API has it so.
var placements = []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey}

// displaced tells whether the leaders of a StatefulSet are placed otherwise than
// the set says. To the StatefulSet controller that is a new template like any
// other, and it must be given like one: with nothing replaced yet.
func displaced(sts *appsv1.StatefulSet, set *lwsv1.LeaderWorkerSet, key string) bool {
	desired := leaderTemplate(set, key)
	for _, placement := range placements {
		if sts.Spec.Template.Annotations[placement] != desired.Annotations[placement] {
			return true
		}
	}
	return false
}

// leftBehind tells whether a leader was made from another template than its
// StatefulSet has now, by what the StatefulSet controller says of both.
func leftBehind(sts *appsv1.StatefulSet, leader *corev1.Pod) bool {
	made := leader.Labels[appsv1.ControllerRevisionHashLabelKey]
	return sts != nil && made != "" && observed(sts) && made != sts.Status.UpdateRevision
}
