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

// EventsToRegister retries a refused pod when one of its PVCs is created, changed or deleted.
func (*Plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{{
		Event: framework.ClusterEvent{
			Resource:   framework.PersistentVolumeClaim,
			ActionType: framework.Add | framework.Update | framework.Delete,
		},
		QueueingHintFn: afterClaim,
	}}, nil
}

// afterClaim reports whether an event of a PVC is worth another try. A terminating PVC is not.
// One that is gone is: the status of the pod then says "not found". Any other change is: the
// record may be shorter, or a write was refused because of that change.
func afterClaim(_ klog.Logger, pod *corev1.Pod, before, after any) (framework.QueueingHint, error) {
	object, gone := after, after == nil
	if gone {
		object = before
	}
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return framework.Queue, fmt.Errorf("event of a PVC has a %T", object)
	}
	switch {
	case claim.Namespace != pod.Namespace, !slices.Contains(pvc.ClaimsOf(pod), claim.Name):
		return framework.QueueSkip, nil
	case !gone && claim.DeletionTimestamp != nil:
		return framework.QueueSkip, nil
	}
	return framework.Queue, nil
}
