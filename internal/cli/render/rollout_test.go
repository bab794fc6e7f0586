package render_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/lws"
)

// rolling is a survey of ten groups on their way to revision 4.
func rolling(edits ...func(*clilws.Survey)) clilws.Survey {
	s := newSurvey(10, 1)
	s.Set.Set.Generation, s.Set.Set.Status.ObservedGeneration = 7, 7
	s.Set.Revisions.Owned = []*appsv1.ControllerRevision{revision(3, "older", "image:1"), revision(4, key, "image:2")}
	s.Standing = lws.Standing{Key: key, Target: 10, TargetUpdated: 10, TargetReady: 10, Ready: 10, Updated: 10}
	for i := range 10 {
		s = with(s, i, "+")
	}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

func revision(number int64, key, image string) *appsv1.ControllerRevision {
	set := &lwsv1.LeaderWorkerSet{}
	set.Spec.LeaderWorkerTemplate.WorkerTemplate = template(image)
	data, err := lws.RevisionData(set)
	if err != nil {
		panic(err)
	}
	r := &appsv1.ControllerRevision{Revision: number}
	r.Name, r.Labels, r.Data.Raw = "llama-"+key, map[string]string{lwsv1.RevisionKey: key}, data
	r.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(10-number) * time.Hour))
	return r
}

func TestWhatARolloutWaitsFor(t *testing.T) {
	paused := func(s *clilws.Survey) {
		s.Set.Set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: "true"}
	}
	tests := []struct {
		name string
		edit func(*clilws.Survey)
		want string
		done bool
	}{
		{"nothing", func(*clilws.Survey) {}, `leaderworkerset "llama" successfully rolled out: 10 groups at revision 4`, true},
		{"an operator that has not observed the spec", func(s *clilws.Survey) { s.Set.Set.Generation = 8 },
			"waiting for the operator to observe generation 8 of llama", false},
		{"groups of the old revision", func(s *clilws.Survey) { s.Standing.TargetUpdated, s.Standing.TargetReady = 7, 6 },
			"waiting for 3 of 10 groups to be updated", false},
		{"a revision that is not made yet", func(s *clilws.Survey) {
			s.Standing.Key, s.Standing.TargetUpdated = "new", 0
		}, "waiting for 10 of 10 groups to be updated", false},
		{"groups that start", func(s *clilws.Survey) {
			s.Standing.TargetReady = 8
		}, "waiting for 2 of 10 groups to be ready", false},
		{"a surge group", func(s *clilws.Survey) { s.Standing.Surge = 1 }, "waiting for 1 surge group to be deleted", false},
		{"groups from the partition on", func(s *clilws.Survey) { s.Standing.Target, s.Standing.TargetUpdated = 4, 1 },
			"waiting for 3 of 4 groups to be updated", false},
		{"nothing, with a partition", func(s *clilws.Survey) {
			s.Standing.Target, s.Standing.TargetUpdated, s.Standing.TargetReady = 4, 4, 4
		}, `partitioned roll out complete: 4 groups of leaderworkerset "llama" have been updated, 6 are kept below the partition`, true},
		{"the user", func(s *clilws.Survey) {
			paused(s)
			s.Standing.TargetUpdated = 7
		}, "waiting: the rollout is paused", false},
		{"the user, whose template waits", func(s *clilws.Survey) {
			paused(s)
			s.Standing.Pending = true
			s.Plan.Waits = []lws.Wait{{Reason: action.Reason{Code: lws.CodePaused, Sentence: "Rollout is paused with 10 of 10 groups at revision x"}}}
		}, "waiting: Rollout is paused with 10 of 10 groups at revision x", false},
		{"claims that the set does not have", func(s *clilws.Survey) {
			s.Standing.Pending, s.Standing.TargetUpdated = true, 0
			s.Plan.Waits = []lws.Wait{{Reason: action.Reason{Code: lws.CodeVolumeClaimsDiffer, Sentence: "the template waits"}}}
		}, "waiting: the template waits", false},
		{"nothing while paused", paused, `leaderworkerset "llama" successfully rolled out: 10 groups at revision 4`, true},
		{"the previous incarnation", func(s *clilws.Survey) {
			s.Plan.Waits = []lws.Wait{{Reason: action.Reason{Code: lws.CodePreviousIncarnation, Sentence: "waiting for pod llama-0"}}}
			s.Standing.TargetUpdated = 0
		}, "waiting: waiting for pod llama-0", false},
		{"a spec that is refused", func(s *clilws.Survey) {
			s.Set.Set.Status.Conditions[0].Reason, s.Set.Set.Status.Conditions[0].Message = lws.CodeRefused, "the API server refuses it"
			s.Set.Set.Generation = 8
		}, "waiting: the API server refuses it", false},
		{"nothing, though a group below the partition is refused its workers", func(s *clilws.Survey) {
			s.Set.Set.Status.Conditions[0].Reason, s.Set.Set.Status.Conditions[0].Message = lws.CodeRefused, "the API server refuses it"
			s.Standing.Target, s.Standing.TargetUpdated, s.Standing.TargetReady = 4, 4, 4
		}, `partitioned roll out complete: 4 groups of leaderworkerset "llama" have been updated, 6 are kept below the partition`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := render.RolloutOf(rolling(tt.edit))
			if got.Message != tt.want || got.Done != tt.done {
				t.Errorf("got %+v, want %q, done %v", got, tt.want, tt.done)
			}
		})
	}
}

// A rollback gives a revision a new number: the old one is not the answer.
func TestRevisionHasNoNumberUntilTheSpecIsObserved(t *testing.T) {
	back := rolling(func(s *clilws.Survey) {
		s.Set.Set.Generation = 8
		s.Standing.Key = "older"
	})
	if got := render.RolloutOf(back).Number; got != 0 {
		t.Errorf("got %d", got)
	}
}
