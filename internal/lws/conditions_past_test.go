package lws_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// What was waited for is past once it is: a condition that has ceased to hold says
// what clients look for, and one that goes on asks nobody to resume it.
func TestConditionsDoNotSpeakOfWhatIsPast(t *testing.T) {
	c := running(t, 2, 1)
	fakeapi.Edit(c.Server, "w", fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue))
	image(c, "image:2")
	c.do(c.decideSet())
	if got := condition(c.status(), updating); got.Reason != lws.CodePaused {
		t.Fatalf("invalid run: %v", brief(c.status()))
	}
	fakeapi.Edit(c.Server, "w-1", func(pod *corev1.Pod) { pod.Status.Conditions = nil })
	image(c, "image:1")
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { delete(set.Annotations, lwsv1.PausedAnnotationKey) })
	c.do(c.decideSet())
	if got := brief(c.status()); got[updating] != isUpdating || got[progressing] != isProgressing {
		t.Errorf("resumed: %v", got)
	}
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		for i := range set.Status.Conditions {
			set.Status.Conditions[i].Reason, set.Status.Conditions[i].Message = lws.CodePreviousIncarnation, "waiting for 1 pod"
		}
	})
	fakeapi.Edit(c.Server, "w-1", fakeapi.Up)
	c.do(c.decideSet())
	if got := brief(c.status()); got[updating] != wasUpdating || got[progressing] != wasProgressing || got[available] != isAvailable {
		t.Errorf("done: %v", got)
	}
}
