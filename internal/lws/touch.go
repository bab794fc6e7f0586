package lws

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// A StatefulSet is touched at once when it has stalled, and then after pauses that grow with
// the time for which it has stalled.
const (
	touchPauseMin = 30 * time.Second
	touchPauseMax = 5 * time.Minute
)

// TouchStalled wakes the StatefulSet controller when a StatefulSet lacks pods, creates none, and
// has a free name for one that the controller gets to. It retries after up to 1,000 s, and no
// deletion of a pod of another owner wakes it; any change of the StatefulSet does.
func (p *Plan) TouchStalled(sts *appsv1.StatefulSet, now, since time.Time, isFree bool) {
	p.Await(now.Add(ConflictLook), CodeMissing,
		fmt.Sprintf("statefulset %s has %d of %d pods", sts.Name, sts.Status.Replicas, ptr.Deref(sts.Spec.Replicas, 1)))
	if since.IsZero() || !isFree {
		return
	}
	last, err := time.Parse(time.RFC3339, sts.Annotations[NudgeAnnotationKey])
	pause := min(max(now.Sub(since)/2, touchPauseMin), touchPauseMax)
	if err == nil && now.Before(last.Add(pause)) {
		return
	}
	annotations := map[string]string{NudgeAnnotationKey: now.UTC().Format(time.RFC3339)}
	part := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	p.Apply(part, identity.RefOf(identity.KindStatefulSet, sts), nudgeFieldOwner,
		Because(CodeNudge, fmt.Sprintf("statefulset %s lacks pods whose names are free", sts.Name)), "")
}

// IsFirstFree reports the same of workers. A status that lags behind the pods counts as nothing missing.
func (g *Group) IsFirstFree(sts *appsv1.StatefulSet) bool {
	others := slices.Concat(ObjectsOf(identity.KindPod, slices.Concat(g.Misspelt, g.OthersPods())), ObjectsOf(identity.KindPersistentVolumeClaim, g.Volumes.Previous))
	return IsFirstFree(sts, g.Pods, others, 1)
}

// IsFirstFree reports whether a StatefulSet whose ordinals begin at start lacks a pod, and the name of the first is free.
func IsFirstFree(sts *appsv1.StatefulSet, pods identity.Claim[*corev1.Pod], others []Object, start int) bool {
	own := OrdinalsOf(ObjectsOf(identity.KindPod, slices.DeleteFunc(slices.Concat(pods.Owned, pods.Previous), func(pod *corev1.Pod) bool {
		return !metav1.IsControlledBy(pod, sts)
	})))
	first := start
	for own[first] {
		first++
	}
	return first < start+int(workload.PodsOf(sts)) && !OrdinalsOf(others)[first]
}

// OthersPods returns the pods under names of workers that the group's StatefulSet does not own.
func (g *Group) OthersPods() []*corev1.Pod {
	return append(NotOf(g.Workers.Own(), g.Pods.Previous), g.Pods.Foreign...)
}

// NotOf returns the pods that a StatefulSet does not control, if there is one.
func NotOf(sts *appsv1.StatefulSet, pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return sts != nil && metav1.IsControlledBy(pod, sts) })
}
