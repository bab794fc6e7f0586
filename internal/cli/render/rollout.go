package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/lws"
)

// Rollout is the state that "rollout status" prints.
type Rollout struct {
	// Done is set when every group that is to be updated is, and is ready, and no
	// surge group is left.
	Done bool
	// Number is that of the target revision, or 0 until the operator has seen the spec: a rollback
	// gives a revision a new number.
	Number int64
	// Message is a sentence in one line: what is waited for, or that it is done.
	Message string
}

// RolloutOf returns how far a rollout has come.
func RolloutOf(s clilws.Survey) Rollout {
	r := Rollout{Number: numberOf(s)}
	if r.Message = inLine(waitingFor(s)); r.Message == "" {
		r.Done, r.Message = true, done(s, r.Number)
	}
	return r
}

// numberOf is the number of the revision that groups are to be at.
func numberOf(s clilws.Survey) int64 {
	if s.Set.Set.Status.ObservedGeneration < s.Set.Set.Generation {
		return 0
	}
	var number int64
	for _, revision := range s.Set.Revisions.Members {
		if s.Standing.Key != "" && revision.Labels[lwsv1.RevisionKey] == s.Standing.Key {
			number = max(number, revision.Revision)
		}
	}
	return number
}

// waitingFor says what a rollout waits for first, or is empty when it is done. A refusal below the
// partition does not delay a rollout.
func waitingFor(s clilws.Survey) string {
	lacks := lacking(s)
	if lacks == "" {
		return ""
	}
	for _, c := range s.Set.Set.Status.Conditions {
		if c.Type == string(lwsv1.LeaderWorkerSetProgressing) && c.Status == metav1.ConditionTrue && c.Reason == lws.CodeRefused {
			return "waiting: " + c.Message
		}
	}
	return lacks
}

// lacking says what a rollout lacks, or is empty.
func lacking(s clilws.Survey) string {
	set, stands := s.Set.Set, s.Standing
	switch {
	case set.Status.ObservedGeneration < set.Generation:
		return fmt.Sprintf("waiting for the operator to act on generation %d of %s; it has acted on %d", set.Generation, set.Name, set.Status.ObservedGeneration)
	case lws.Paused(set) && (stands.Pending || stands.TargetUpdated < stands.Target):
		return pausedAt(s)
	case stands.Pending:
		return "waiting: " + waitOf(s, lws.CodeVolumeClaimsDiffer)
	case waitOf(s, lws.CodePreviousIncarnation, lws.CodeNameConflict) != "":
		return "waiting: " + waitOf(s, lws.CodePreviousIncarnation, lws.CodeNameConflict)
	case stands.TargetUpdated < stands.Target:
		return fmt.Sprintf("waiting for %d of %s to be updated%s", stands.Target-stands.TargetUpdated, target(s), toRevision(s)) + firstRefusal(s)
	case stands.TargetReady < stands.Target:
		return fmt.Sprintf("waiting for %d of %s to be ready: %s", stands.Target-stands.TargetReady, target(s), unreadyGroups(s)) + firstRefusal(s)
	case stands.Surge > 0:
		return fmt.Sprintf("waiting for %s to go", counted(int(stands.Surge), "surge group"))
	}
	return ""
}

// firstRefusal returns the first refusal of the API server to create a pod or StatefulSet. The rollout
// does not continue by itself then.
func firstRefusal(s clilws.Survey) string {
	groups := groups(s)
	all := missingGroups(s, groups)
	for _, g := range groups {
		all = append(all, g.Waiting...)
	}
	for _, w := range all {
		if w.Reason == lws.CodeRefused {
			return "; " + w.Message
		}
	}
	return ""
}

// waitOf returns the first wait of the set's plan with one of the reasons.
func waitOf(s clilws.Survey, codes ...string) string {
	for _, w := range s.Plan.Waits {
		if slices.Contains(codes, w.Code) {
			return w.Sentence
		}
	}
	return ""
}

func pausedAt(s clilws.Survey) string {
	if text := waitOf(s, lws.CodePaused, lws.CodeRevisionNotVisible); text != "" {
		return "waiting: " + text
	}
	return fmt.Sprintf("waiting: the rollout is paused; resume it with: kubectl lockstep rollout resume %s -n %s", s.Set.Set.Name, s.Set.Set.Namespace)
}

// target says how many groups are to be updated, and which if not all.
func target(s clilws.Survey) string {
	all := lws.Replicas(s.Set.Set)
	if s.Standing.Target == all {
		return counted(int(all), "group")
	}
	return fmt.Sprintf("the %s from index %d on", counted(int(s.Standing.Target), "group"), all-s.Standing.Target)
}

func toRevision(s clilws.Survey) string {
	if number := numberOf(s); number != 0 {
		return fmt.Sprintf(" to revision %d (%s)", number, s.Standing.Key)
	}
	return ""
}

// unreadyGroups names the groups that are to be updated and are not ready.
func unreadyGroups(s clilws.Survey) string {
	ready := map[int]bool{}
	for i := range s.Groups {
		ready[s.Groups[i].Index] = s.Groups[i].Ready(s.Set.Set)
	}
	var names []string
	replicas := int(lws.Replicas(s.Set.Set))
	for index := replicas - int(s.Standing.Target); index < replicas; index++ {
		if !ready[index] {
			names = append(names, strconv.Itoa(index))
		}
	}
	if len(names) == 1 {
		return "group " + names[0]
	}
	return strings.TrimSuffix("groups "+few(names, len(names)), " ")
}

// done says that a rollout is over. Scripts look for this text.
func done(s clilws.Survey, number int64) string {
	set := s.Set.Set
	if s.Standing.Target < lws.Replicas(set) {
		return fmt.Sprintf("partitioned roll out complete: %s of leaderworkerset %q have been updated, %d are kept below the partition",
			counted(int(s.Standing.Target), "group"), set.Name, lws.Replicas(set)-s.Standing.Target)
	}
	return fmt.Sprintf("leaderworkerset %q successfully rolled out: %s at revision %d", set.Name, counted(int(lws.Replicas(set)), "group"), number)
}
