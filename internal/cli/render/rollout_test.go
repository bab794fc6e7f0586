package render

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/action"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/lws"
)

func TestWhatARolloutWaitsFor(t *testing.T) {
	wait := func(code string) func(*clilws.Survey) {
		return func(s *clilws.Survey) { s.Plan.Waits = []lws.Wait{{Reason: reasonFor(code, "pod llama-0")}} }
	}
	refused := func(s *clilws.Survey) {
		s.Set.Set.Status.Conditions[0].Reason, s.Set.Set.Status.Conditions[0].Message = lws.CodeRefused, "too many"
	}
	unattended := func(s *clilws.Survey) {
		s.Unattended = &action.Reason{Code: clilws.CodeNoOperator, Sentence: "no lease"}
	}
	unobserved := func(s *clilws.Survey) { s.Set.Set.Generation = 8 }
	pending := func(s *clilws.Survey) { s.Standing.Pending = true }
	for _, tt := range []struct {
		name string
		// target is how many groups are to be at the revision; updated and ready of them are.
		target, updated, ready, surge int32
		edits                         []func(*clilws.Survey)
		want                          string
		done                          bool
	}{
		{"done", 10, 10, 10, 0, nil, `"llama" successfully rolled out: 10 groups at revision 4`, true},
		{"spec not observed", 10, 10, 10, 0, []func(*clilws.Survey){unobserved}, "generation 8 of llama", false},
		{"groups of the old revision", 10, 7, 6, 0, nil, "3 of 10 groups to be updated", false},
		{"groups that start", 10, 10, 8, 0, nil, "2 of 10 groups to be ready", false},
		{"a surge group", 10, 10, 10, 1, nil, "1 surge group", false},
		{"groups from the partition on", 4, 1, 1, 0, nil, "3 of 4 groups to be updated", false},
		{"done with a partition", 4, 4, 4, 0, nil, "partitioned roll out complete: 4 groups", true},
		{"paused", 10, 7, 7, 0, []func(*clilws.Survey){paused}, "waiting: the rollout is paused", false},
		{"paused, with a template that waits", 10, 10, 10, 0, []func(*clilws.Survey){paused, pending, wait(lws.CodePaused)}, "waiting: pod llama-0", false},
		{"done while paused", 10, 10, 10, 0, []func(*clilws.Survey){paused}, "successfully rolled out", true},
		{"PVCs that the set does not have", 10, 0, 0, 0, []func(*clilws.Survey){pending, wait(lws.CodeVolumeClaimsDiffer)}, "waiting: pod llama-0", false},
		{"the previous incarnation", 10, 0, 0, 0, []func(*clilws.Survey){wait(lws.CodePreviousIncarnation)}, "waiting: pod llama-0", false},
		{"an ordinary step", 10, 7, 7, 0, []func(*clilws.Survey){wait(lws.CodePreviousIncarnation), func(s *clilws.Survey) { s.Plan.Waits[0].Ordinary = true }},
			"3 of 10 groups to be updated", false},
		{"a refused spec", 10, 10, 10, 0, []func(*clilws.Survey){refused, unobserved}, "waiting: too many", false},
		{"a refusal below the partition", 4, 4, 4, 0, []func(*clilws.Survey){refused}, "6 are kept below the partition", true},
		{"done, without an operator", 10, 10, 10, 0, []func(*clilws.Survey){unattended}, "revision 4 (7bdcf6cbd6); no lease", true},
		{"groups that start without an operator", 10, 10, 8, 0, []func(*clilws.Survey){unattended}, "groups to be ready; no lease", false},
		{"a spec that is not observed", 10, 10, 10, 0, []func(*clilws.Survey){unobserved, unattended}, "of llama; no lease", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSurvey(10, 1)
			s.Set.Set.Generation, s.Set.Set.Status.ObservedGeneration = 7, 7
			s.Set.Revisions.Owned = []*appsv1.ControllerRevision{newRevision(3, "older", "image:1"), newRevision(4, key, "image:2")}
			s.Standing = lws.Standing{Key: key, Target: tt.target, TargetUpdated: tt.updated, TargetReady: tt.ready, Surge: tt.surge}
			for _, edit := range tt.edits {
				edit(&s)
			}
			got, number := RolloutOf(s), int64(4)
			if s.Set.Set.Generation == 8 { // a rollback gives a revision a new number: the old one is not the answer
				number = 0
			}
			if !strings.Contains(got.Message, tt.want) || got.Done != tt.done || got.Number != number {
				t.Errorf("got %+v, want %q, done %v", got, tt.want, tt.done)
			}
		})
	}
}
