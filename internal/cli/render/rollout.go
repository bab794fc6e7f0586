package render

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Rollout is the state that "rollout status" prints.
type Rollout struct {
	// Done is set when every group of the target is updated and ready, and no surge group is left.
	Done bool
	// Number is that of the target revision, or 0 until the operator has observed the spec: a rollback
	// gives a revision a new number.
	Number int64
	// Message is one line: the next wait, or that the rollout is done.
	Message string
}

// RolloutOf returns how far a rollout has come.
func RolloutOf(s clilws.Survey) Rollout {
	r := Rollout{}
	if observed(s) {
		r.Number = numberOf(s, s.Standing.Key)
	}
	if r.Message = plain(nextWait(s)); r.Message == "" {
		r.Done, r.Message = true, done(s, r.Number)
	}
	if s.Unattended != nil {
		r.Message += "; " + s.Unattended.Sentence
	}
	return r
}

// numberOf returns the number of the revision with a key, or 0.
func numberOf(s clilws.Survey, key string) (number int64) {
	for _, r := range s.Set.Revisions.Owned {
		if key != "" && r.Labels[lwsv1.RevisionKey] == key {
			number = max(number, r.Revision)
		}
	}
	return number
}

func observed(s clilws.Survey) bool {
	return s.Set.Set.Status.ObservedGeneration >= s.Set.Set.Generation
}

// nextWait returns what a rollout waits for first, or is empty when it is done. A refusal below the
// partition does not delay a rollout.
func nextWait(s clilws.Survey) string {
	wait := standingWait(s)
	if wait == "" {
		return ""
	}
	for _, c := range s.Set.Set.Status.Conditions {
		if c.Type == string(lwsv1.LeaderWorkerSetProgressing) && c.Status == metav1.ConditionTrue && c.Reason == lws.CodeRefused {
			return "waiting: " + c.Message
		}
	}
	return wait
}

func standingWait(s clilws.Survey) string {
	set, standing := s.Set.Set, s.Standing
	target := counted(int(standing.Target), "group")
	switch {
	case !observed(s):
		return fmt.Sprintf("waiting for the operator to observe generation %d of %s", set.Generation, set.Name)
	case lws.Paused(set) && (standing.Pending || standing.TargetUpdated < standing.Target):
		return "waiting: " + planWait(s, "the rollout is paused", lws.CodePaused, lws.CodeRevisionNotVisible)
	case standing.Pending:
		return "waiting: " + planWait(s, "the revision is pending", lws.CodeVolumeClaimsDiffer)
	case planWait(s, "", lws.CodePreviousIncarnation, lws.CodeNameConflict) != "":
		return "waiting: " + planWait(s, "", lws.CodePreviousIncarnation, lws.CodeNameConflict)
	case standing.TargetUpdated < standing.Target:
		return fmt.Sprintf("waiting for %d of %s to be updated", standing.Target-standing.TargetUpdated, target)
	case standing.TargetReady < standing.Target:
		return fmt.Sprintf("waiting for %d of %s to be ready", standing.Target-standing.TargetReady, target)
	case standing.Surge > 0:
		return fmt.Sprintf("waiting for %s to be deleted", counted(int(standing.Surge), "surge group"))
	}
	return ""
}

// planWait returns the first wait of the set's plan with one of the reasons, or else the text. An ordinary step of a
// rollout is none.
func planWait(s clilws.Survey, text string, codes ...string) string {
	for _, w := range s.Plan.Waits {
		if slices.Contains(codes, w.Code) && !w.Ordinary {
			return w.Sentence
		}
	}
	return text
}

// done returns the sentence that a rollout is over. Scripts search for this text.
func done(s clilws.Survey, number int64) string {
	set := s.Set.Set
	if s.Standing.Target < workload.Replicas(set) {
		return fmt.Sprintf("partitioned roll out complete: %s of leaderworkerset %q have been updated, %d are kept below the partition",
			counted(int(s.Standing.Target), "group"), set.Name, workload.Replicas(set)-s.Standing.Target)
	}
	return fmt.Sprintf("leaderworkerset %q successfully rolled out: %s at revision %s",
		set.Name, counted(int(workload.Replicas(set)), "group"), revision.Title(number, s.Standing.Key))
}
