package lws_test

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// send gives the set an exclusive topology that it never had: another template of the
// same revision. Workers would need a node that has it.
func (w *rollingWorld) send() {
	if lws.Size(find[*lwsv1.LeaderWorkerSet](w.cluster, "w")) > 1 {
		return
	}
	w.edits++
	place(w.cluster, lwsv1.ExclusiveKeyAnnotationKey, fmt.Sprintf("zone-%d", w.edits))
	w.met.when("a topology changed", true)
}

// topology is where a StatefulSet sends its pods: another one is another template.
func topology(sts *appsv1.StatefulSet) string {
	return sts.Spec.Template.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
}

// sentElsewhere tells whether the set has come to say another topology than it did when
// its StatefulSet was last written.
func sentElsewhere(live, wanted *appsv1.StatefulSet) bool {
	return live.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != wanted.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
}
