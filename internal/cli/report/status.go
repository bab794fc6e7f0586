package report

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// missingAtMost bounds how many groups of which nothing exists are listed.
const missingAtMost = 10_000

// Status puts a survey into a status.
func Status(s survey.Survey) *SetStatus {
	set := s.Set.Set
	status := &SetStatus{
		TypeMeta:  kind(kindStatus),
		Namespace: set.Namespace, Name: set.Name, UID: set.UID, Generation: set.Generation,
		CreatedAt: set.CreationTimestamp, DeletedAt: timeOf(survey.DeletedAt(set)),
		Desired: lws.Replicas(set), Size: lws.Size(set),
		Ready: s.Standing.Ready, UpToDate: s.Standing.Updated, Revision: s.Standing.Key,
		Paused:     lws.Paused(set),
		Conditions: set.Status.Conditions,
		Waiting:    setWaits(s),
		Due:        due(s),
		Ghosts: slices.Concat(ghosts(identity.KindStatefulSet, s.Set.StatefulSet.Ghosts),
			ghosts(identity.KindService, s.Set.Service.Ghosts), ghosts(identity.KindControllerRevision, only(s.Set.Revisions.Ghosts, ofSet))),
	}
	status.Groups, status.GroupsOmitted = groups(s)
	return status
}

// groups returns the groups that are wanted and those of which anything is left.
func groups(s survey.Survey) (all []GroupStatus, omitted int) {
	all = []GroupStatus{}
	wanted, next, listed := int(lws.Replicas(s.Set.Set)), 0, 0
	missing := func(below int) {
		for ; next < below; next++ {
			if listed == missingAtMost {
				omitted += below - next
				break
			}
			listed++
			all = append(all, missingGroup(s, next))
		}
	}
	for _, g := range s.Groups {
		missing(min(g.Index, wanted))
		next = g.Index + 1
		if status := groupStatus(s, g); status.Wanted || status.Exists || len(status.Ghosts) > 0 {
			all = append(all, status)
		}
	}
	missing(wanted)
	return all, omitted
}

func missingGroup(s survey.Survey, index int) GroupStatus {
	var g survey.Group
	g.Set, g.Index, g.LeaderName = s.Set.Set, index, identity.LeaderName(s.Set.Set.Name, index)
	return groupStatus(s, g)
}

func groupStatus(s survey.Survey, g survey.Group) GroupStatus {
	status := GroupStatus{
		Index: g.Index, Leader: g.LeaderName,
		Wanted: int32(g.Index) < lws.Replicas(g.Set),
		Exists: g.Leader != nil,
		Ready:  g.Ready(g.Set), UpToDate: g.UpToDate(s.Standing.Key),
		Pods:   sizeOf(g),
		Ghosts: groupGhosts(s, g),
		Failed: failureOf(g),
	}
	fillPods(&status, g)
	status.Waiting = groupWaits(s, g, status)
	return status
}

// due counts the writes that are decided and not made.
func due(s survey.Survey) int {
	count := len(s.Plan.Actions)
	for _, g := range s.Groups {
		count += len(g.Plan.Actions)
	}
	return count
}

// setWaits are the waits of the set as a whole.
func setWaits(s survey.Survey) []Wait {
	return since(s, waits(s.Plan.Waits))
}

// since adds to a wait when its condition began to hold.
func since(s survey.Survey, all []Wait) []Wait {
	for i := range all {
		for _, c := range s.Set.Set.Status.Conditions {
			if c.Status == metav1.ConditionTrue && c.Reason == all[i].Reason {
				at := c.LastTransitionTime
				all[i].Since = &at
			}
		}
	}
	return all
}

// waits puts a plan's waits into the form that is shown. Two with the same words
// are one.
func waits(all []lws.Wait) []Wait {
	var shown []Wait
	for _, w := range all {
		wait := Wait{Reason: w.Code, Message: w.Sentence, Until: timeOf(w.Until)}
		same := func(other Wait) bool { return other.Reason == wait.Reason && other.Message == wait.Message }
		if !slices.ContainsFunc(shown, same) {
			shown = append(shown, wait)
		}
	}
	return shown
}

func timeOf(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	t := metav1.NewTime(at)
	return &t
}

func reasonOf(code, message string) Wait { return Wait{Reason: code, Message: message} }
