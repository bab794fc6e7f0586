package lws

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// A group has as many pods as its template says, and each of them is told so. Who
// scales the StatefulSet of its workers by hand has a group that waits for pods
// which do not come, or that knows nothing of those which did. Only the number is
// put right: what the pods are made of stays with the StatefulSet for life.

func scaleBack(sts *appsv1.StatefulSet, workers int32) action.Apply {
	return action.Apply{
		Object:     &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: &workers}},
		Onto:       identity.RefOf(identity.KindStatefulSet, sts),
		FieldOwner: scaleFieldOwner,
		Because:    because(CodeChanged, fmt.Sprintf("statefulset %s was scaled to %d workers, and its pods are told of %d", sts.Name, workload.PodsOf(sts), workers)),
		Tell: action.Telling{Refused: &action.Event{
			Warning: true, Reason: "FailedUpdate", Action: "Update", Note: "Failed to scale back worker statefulset " + sts.Name,
		}},
	}
}
