package lws_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A leader is of its StatefulSet's template, and does not say where that sends it:
// somebody took it off, or a webhook does. Each look before the StatefulSet controller
// told took it for one of a former template and lent a surge group; each look after took
// that back, with a write that was to be seen in turn.
func TestALeaderThatSomebodySentElsewhereIsLentNoSurgeGroupOverAndOver(t *testing.T) {
	const topology = lwsv1.ExclusiveKeyAnnotationKey
	c := running(t, 3, 1, fakeapi.Annotation(topology, "rack"), func(set *lwsv1.LeaderWorkerSet) {
		rollingOf(set).MaxUnavailable, rollingOf(set).MaxSurge = intstr.FromInt32(0), intstr.FromInt32(1)
		rollingOf(set).Partition = fakeapi.Ptr[int32](1)
	})
	c.settleAll()
	fakeapi.Edit(c.Server, "w-2", func(pod *corev1.Pod) { delete(pod.Annotations, topology) })
	edited(c, func(set *lwsv1.LeaderWorkerSet) { rollingOf(set).Partition = fakeapi.Ptr[int32](2) })
	for i := range 6 {
		c.do(c.decideSet())
		c.do(c.decideSet()) // before it was seen
		sts := find[*appsv1.StatefulSet](c, "w")
		if *sts.Spec.Replicas != 3 {
			t.Errorf("look %d: %d groups", i, *sts.Spec.Replicas)
		}
		c.turn(groupNames...)
	}
}
