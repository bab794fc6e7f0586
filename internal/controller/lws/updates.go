package lws

import (
	"maps"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

func always(_, _ client.Object) bool { return true }
func never(_, _ client.Object) bool  { return false }

// ownership reports whether an update changed the owners of an object, or marked it deleted.
func ownership(before, after client.Object) bool {
	return (before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
		!reflect.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences())
}

// workersChanged reports whether an update of a StatefulSet changed its owners or, for workers,
// its replicas or labels. The set reconciles the one of leaders.
func workersChanged(before, after client.Object) bool {
	was, is, ok := both[*appsv1.StatefulSet](before, after)
	return !ok || ownership(before, after) ||
		labelledSet(after) != keyOf(after) && (workload.PodsOf(was) != workload.PodsOf(is) || !maps.Equal(was.Labels, is.Labels)) ||
		workload.HashKey(after) != "" && lws.WorkersReady(was) != lws.WorkersReady(is)
}

// deploymentProgress reports whether an update of a Deployment changed what sets are judged by.
func deploymentProgress(before, after client.Object) bool {
	was, is, ok := both[*appsv1.Deployment](before, after)
	return !ok || deploymentChanged(before, after) || was.Generation != is.Generation || !reflect.DeepEqual(was.Status, is.Status)
}

// deploymentChanged reports whether an update of a Deployment changed its owners or labels.
func deploymentChanged(before, after client.Object) bool {
	return ownership(before, after) || !maps.Equal(before.GetLabels(), after.GetLabels())
}

// statefulSetProgress reports whether an update of a StatefulSet changed what sets are judged by.
func statefulSetProgress(before, after client.Object) bool {
	was, is, ok := both[*appsv1.StatefulSet](before, after)
	return !ok || ownership(before, after) || was.Generation != is.Generation ||
		was.Annotations[lwsv1.ReplicasAnnotationKey] != is.Annotations[lwsv1.ReplicasAnnotationKey] ||
		was.Annotations[lws.AsFoundAnnotationKey] != is.Annotations[lws.AsFoundAnnotationKey] ||
		!maps.Equal(was.Labels, is.Labels) || !reflect.DeepEqual(was.Status, is.Status)
}

// serviceChanged reports whether an update changed a Service's owners, labels or spec.
func serviceChanged(before, after client.Object) bool {
	was, is, ok := both[*corev1.Service](before, after)
	return !ok || ownership(before, after) || !reflect.DeepEqual(was.Spec, is.Spec) || !maps.Equal(was.Labels, is.Labels)
}

// desire reports whether an update of a set changed anything but its status.
func desire(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration() || ownership(before, after) ||
		!maps.Equal(before.GetLabels(), after.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations())
}

// statusChanged reports whether an update of a set changed its status.
func statusChanged(before, after client.Object) bool {
	was, is, ok := both[*lwsv1.LeaderWorkerSet](before, after)
	return ok && was.ResourceVersion != is.ResourceVersion && !reflect.DeepEqual(was.Status, is.Status)
}

// groupDesire reports whether an update of a set concerns groups that exist.
func groupDesire(before, after client.Object) bool {
	was, is, ok := both[*lwsv1.LeaderWorkerSet](before, after)
	isLeftAlone := func(set *lwsv1.LeaderWorkerSet) bool {
		return condition.IsTrue(set.Status.Conditions, lws.CodeUnsupported)
	}
	return ok && (isLeftAlone(was) && !isLeftAlone(is) || was.Spec.StartupPolicy != is.Spec.StartupPolicy || restart.Recreates(was) != restart.Recreates(is) ||
		workload.EndsInParallel(was) != workload.EndsInParallel(is) ||
		!equality.Semantic.DeepEqual(was.Spec.NetworkConfig, is.Spec.NetworkConfig) ||
		volumes.Keeps(was) != volumes.Keeps(is) ||
		was.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != is.Annotations[lwsv1.ExclusiveKeyAnnotationKey] ||
		!maps.Equal(gang.Meant(was.Annotations), gang.Meant(is.Annotations)))
}

// podProgress reports whether an update of a pod changed what groups are judged by: its owners,
// its node, its gate, whether it runs and is ready, and whether a user recovers or recreates its group.
func podProgress(before, after client.Object) bool {
	was, is, ok := both[*corev1.Pod](before, after)
	return !ok || ownership(before, after) || was.Spec.NodeName != is.Spec.NodeName ||
		was.Status.Phase != is.Status.Phase || restart.Restarts(was) != restart.Restarts(is) || lws.PodReady(was) != lws.PodReady(is) ||
		restart.IsRecovered(was) != restart.IsRecovered(is) || restart.IsRequested(was) != restart.IsRequested(is) ||
		workload.IsGated(was) != workload.IsGated(is) || lws.StartsWorkers(was) != lws.StartsWorkers(is) || lws.GroupReadyOf(was) != lws.GroupReadyOf(is) ||
		workload.Unschedulable(was) != workload.Unschedulable(is) || !maps.Equal(was.Labels, is.Labels)
}

// both returns the two states of an update, if both have the type.
func both[T client.Object](before, after client.Object) (was, is T, ok bool) {
	was, ok = before.(T)
	is, ok2 := after.(T)
	return was, is, ok && ok2
}
