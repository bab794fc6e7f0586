package report_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/report"
	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/lws"
)

// What the API server does not let be made is told with its words: nothing else says
// why it is not there.
func TestWhatCannotBeMadeIsShownWithTheReason(t *testing.T) {
	s := with(with(newSurvey(3, 3), 0, "++."), 1, "+")
	workers := s.Groups[0].Workers.Members[0]
	workers.UID = "workers"
	s.Groups[1].Workers.Members, s.Groups[1].Leader.UID = nil, "leader-1"
	s.Groups[1].Leader.Annotations[lwsv1.SizeAnnotationKey] = "3"
	event := func(uid types.UID, message string, related types.UID) corev1.Event {
		return corev1.Event{InvolvedObject: corev1.ObjectReference{UID: uid}, Message: message, Related: &corev1.ObjectReference{UID: related}}
	}
	s.Refusals = survey.RefusalsOf([]corev1.Event{
		event("workers", "create Pod llama-0-2 in StatefulSet llama-0 failed error: exceeded quota", ""),
		event("set", "Failed to create worker statefulset for leader pod llama-1: is invalid", "leader-1"),
		event("leaders", "create Pod llama-2 in StatefulSet llama failed error: must be no more than 63 characters", ""),
	})
	for i, want := range []string{"exceeded quota", "is invalid", "63 characters"} {
		waiting := report.Status(s).Groups[i].Waiting
		if last := waiting[len(waiting)-1]; len(waiting) != 2 || last.Reason != lws.CodeRefused || !strings.Contains(last.Message, want) {
			t.Errorf("group %d: %+v", i, waiting)
		}
	}
	s.Standing.Target, s.Set.Set.Status.ObservedGeneration = 3, 1
	if r := report.RolloutOf(s); r.Done || !strings.Contains(r.Message, "to be updated") || !strings.Contains(r.Message, "exceeded quota") {
		t.Errorf("rollout: %+v", r)
	}
}
