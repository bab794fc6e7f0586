package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/lws"
)

// Rollout is how far a rollout has come: what "rollout status" tells.
type Rollout struct {
	// Done is set when every group that is to be updated is, and is ready, and no
	// surge group is left.
	Done bool
	// Number is that of the revision that groups are to be at, or 0 while there is
	// none or the operator has yet to see the spec: one that is gone back to gets a
	// new number.
	Number int64
	// Message is a sentence in one line: what is waited for, or that it is done.
	Message string
}

// RolloutOf tells how far a rollout has come.
func RolloutOf(s survey.Survey) Rollout {
	r := Rollout{Number: numberOf(s)}
	if r.Message = inLine(waitingFor(s)); r.Message == "" {
		r.Done, r.Message = true, done(s, r.Number)
	}
	return r
}

// numberOf is the number of the revision that groups are to be at.
func numberOf(s survey.Survey) int64 {
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

// waitingFor says what a rollout waits for first, or is empty when it is done: what is
// refused to a group below the partition holds up no rollout.
func waitingFor(s survey.Survey) string {
	lacks, refused := lacking(s), refusal(s.Set.Set)
	if lacks != "" && refused != "" {
		return "waiting: " + refused
	}
	return lacks
}

// lacking says what a rollout lacks, or is empty.
func lacking(s survey.Survey) string {
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

// firstRefusal is what the API server said of the first pod or StatefulSet that it did
// not let be made, if it did: such a rollout does not get on by itself.
func firstRefusal(s survey.Survey) string {
	all, _ := groups(s)
	for _, g := range all {
		for _, w := range g.Waiting {
			if w.Reason == lws.CodeRefused {
				return "; " + w.Message
			}
		}
	}
	return ""
}

func refusal(set *lwsv1.LeaderWorkerSet) string {
	for _, c := range set.Status.Conditions {
		if c.Type == string(lwsv1.LeaderWorkerSetProgressing) && c.Status == metav1.ConditionTrue && c.Reason == lws.CodeRefused {
			return c.Message
		}
	}
	return ""
}

func waitOf(s survey.Survey, codes ...string) string {
	for _, w := range s.Plan.Waits {
		if slices.Contains(codes, w.Code) {
			return w.Sentence
		}
	}
	return ""
}

func pausedAt(s survey.Survey) string {
	if text := waitOf(s, lws.CodePaused, lws.CodeRevisionNotVisible); text != "" {
		return "waiting: " + text
	}
	return fmt.Sprintf("waiting: the rollout is paused; resume it with: kubectl lockstep rollout resume %s -n %s", s.Set.Set.Name, s.Set.Set.Namespace)
}

// target says how many groups are to be updated, and which if not all.
func target(s survey.Survey) string {
	all := lws.Replicas(s.Set.Set)
	if s.Standing.Target == all {
		return counted(int(all), "group")
	}
	return fmt.Sprintf("the %s from index %d on", counted(int(s.Standing.Target), "group"), all-s.Standing.Target)
}

func toRevision(s survey.Survey) string {
	if number := numberOf(s); number != 0 {
		return fmt.Sprintf(" to revision %d (%s)", number, s.Standing.Key)
	}
	return ""
}

// unreadyGroups names the groups that are to be updated and are not ready.
func unreadyGroups(s survey.Survey) string {
	ready := map[int]bool{}
	for i := range s.Groups {
		ready[s.Groups[i].Index] = s.Groups[i].Ready(s.Set.Set)
	}
	var names []string
	lacking := 0
	for index := int(lws.Replicas(s.Set.Set) - s.Standing.Target); index < int(lws.Replicas(s.Set.Set)); index++ {
		if ready[index] {
			continue
		}
		if lacking++; len(names) < namedAtMost {
			names = append(names, strconv.Itoa(index))
		}
	}
	return strings.TrimSuffix(plural("group", lacking)+" "+few(names, lacking), " ")
}

func plural(noun string, n int) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// done says that a rollout is over, in words that scripts look for.
func done(s survey.Survey, number int64) string {
	set := s.Set.Set
	if s.Standing.Target < lws.Replicas(set) {
		return fmt.Sprintf("partitioned roll out complete: %s of leaderworkerset %q have been updated, %d are kept below the partition",
			counted(int(s.Standing.Target), "group"), set.Name, lws.Replicas(set)-s.Standing.Target)
	}
	return fmt.Sprintf("leaderworkerset %q successfully rolled out: %s at revision %d", set.Name, counted(int(lws.Replicas(set)), "group"), number)
}

// at tells how many groups run a revision.
func at(s survey.Survey, revision *appsv1.ControllerRevision) int {
	groups := 0
	for i := range s.Groups {
		leader := s.Groups[i].Leader
		if leader != nil && leader.Labels[lwsv1.RevisionKey] == revision.Labels[lwsv1.RevisionKey] {
			groups++
		}
	}
	return groups
}
