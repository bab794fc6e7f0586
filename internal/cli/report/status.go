package report

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// missingAtMost bounds how many groups without any object are listed.
const missingAtMost = 10_000

// Status returns the status of a survey.
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

// groups returns the groups that are wanted, and those that still have an object.
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

// due counts the writes that the operator has yet to make.
func due(s survey.Survey) int {
	count := len(s.Plan.Actions)
	for _, g := range s.Groups {
		count += len(g.Plan.Actions)
	}
	return count
}

func timeOf(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	t := metav1.NewTime(at)
	return &t
}
