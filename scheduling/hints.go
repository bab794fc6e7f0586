package scheduling

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kube-scheduler/framework"

	"lockstep.dev/lockstep/internal/pvc"
)

// EventsToRegister has a pod that was refused tried again when one of its claims
// comes, changes or goes.
func (*Plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{{
		Event: framework.ClusterEvent{
			Resource:   framework.PersistentVolumeClaim,
			ActionType: framework.Add | framework.Update | framework.Delete,
		},
		QueueingHintFn: afterClaim,
	}}, nil
}

// afterClaim reports whether an event of a claim is worth another try. One that goes
// on terminating is not. That it is gone at last helps nobody either, but the pod
// is to say so: who reads "is being deleted" waits, who reads "not found" acts.
//
// A change of the claim alone is worth one: its record may have lost a pod, or the
// write may have been refused because of that very change.
func afterClaim(_ klog.Logger, pod *corev1.Pod, before, after any) (framework.QueueingHint, error) {
	object, gone := after, after == nil
	if gone {
		object = before
	}
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return framework.Queue, fmt.Errorf("event of a claim bears a %T", object)
	}
	switch {
	case claim.Namespace != pod.Namespace, !slices.Contains(pvc.ClaimsOf(pod), claim.Name):
		return framework.QueueSkip, nil
	case !gone && claim.DeletionTimestamp != nil:
		return framework.QueueSkip, nil
	}
	return framework.Queue, nil
}
