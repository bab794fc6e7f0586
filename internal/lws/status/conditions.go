// Package status decides the form of a set's conditions, and when counts alone are written.
//
// It knows which conditions exclude each other and what they usually say. It is pure, and refuses
// to know what groups are.
package status

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
)

// usual is the conditions about progress with their texts: clients look for these.
var usual = []metav1.Condition{
	Holding(lwsv1.LeaderWorkerSetAvailable, "AllGroupsReady", "All replicas are ready"),
	Holding(lwsv1.LeaderWorkerSetProgressing, "GroupsProgressing", "Replicas are progressing"),
	Holding(lwsv1.LeaderWorkerSetUpdateInProgress, "GroupsUpdating", "Rolling Upgrade is in progress"),
}

// over is the same conditions once they are False, in the same order: the texts of one that is True would
// say the opposite.
var over = []metav1.Condition{
	Ceased(Holding(lwsv1.LeaderWorkerSetAvailable, "GroupsNotReady", "Not all replicas are ready and up to date")),
	Ceased(Holding(lwsv1.LeaderWorkerSetProgressing, "NoGroupsProgressing", "No replica is progressing")),
	Ceased(Holding(lwsv1.LeaderWorkerSetUpdateInProgress, "NoGroupsUpdating", "No rolling update is in progress")),
}

// Notice is a condition that is True while it has a message, and becomes False once when that is over. A set that never
// had the condition has none, unless it stands. It is a wait and, when it begins, a warning.
type Notice struct {
	Kind, Reason, Says string
	// OverReason and Over are those of the condition that is False.
	OverReason, Over string
	// Standing is set for a condition that is False before it was ever True, and Told for one that
	// another event tells of.
	Standing, Told bool
	// Ended is the event when it is over, or empty.
	Ended string
	// Again is how soon to look again, where no event tells of its end.
	Again time.Duration
}

// Wanted returns every condition whose place in the status is to change: those of progress, those about progress that
// ceased to hold, and the notices. A condition appears first as True: nothing is there to say that it is not.
func Wanted(have, progress []metav1.Condition, notices []Notice) []metav1.Condition {
	wanted := slices.Clone(progress)
	for _, c := range over {
		if _, told := condition.Of(have, c.Type); told && !slices.ContainsFunc(progress, func(p metav1.Condition) bool { return p.Type == c.Type }) {
			wanted = append(wanted, c)
		}
	}
	for _, n := range notices {
		switch {
		case n.Says != "":
			wanted = append(wanted, Holding(n.Kind, cmp.Or(n.Reason, n.Kind), n.Says))
		case n.Standing || condition.IsTrue(have, n.Kind):
			wanted = append(wanted, Ceased(Holding(n.Kind, n.OverReason, n.Over)))
		}
	}
	return wanted
}

// Usual is a condition about progress with its usual text.
func Usual(kind lwsv1.LeaderWorkerSetConditionType) metav1.Condition {
	c, _ := condition.Of(usual, string(kind))
	return c
}

// Holding is a condition that is True.
func Holding[T ~string](conditionType T, reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(conditionType), Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// Ceased is a condition that became False.
func Ceased(c metav1.Condition) metav1.Condition {
	c.Status = metav1.ConditionFalse
	return c
}

// Counts alone are written again after a pause that grows with the time since a condition last
// changed. A condition, an observed spec, a failure and the last missing group are written at once.
const (
	pauseMin = 2 * time.Second
	pauseMax = 8 * time.Second
)

// Due is when a status is written, or zero for at once.
func Due(told, want *lwsv1.LeaderWorkerSetStatus, replicas int32, written time.Time) time.Time {
	isTurned := !slices.EqualFunc(told.Conditions, want.Conditions, isAlike)
	if isTurned || told.ObservedGeneration != want.ObservedGeneration || arrived(told, want, replicas) {
		return time.Time{}
	}
	return written.Add(pauseAfter(told, want, written))
}

// isAlike reports whether a condition has the status and the reason that it had. Messages do not count.
func isAlike(was, is metav1.Condition) bool {
	return was.Type == is.Type && was.Status == is.Status && was.Reason == is.Reason
}

// pauseAfter is the pause after the last write. The record of a group that is reported ready
// follows soon: the next operator judges the group by it.
func pauseAfter(told, want *lwsv1.LeaderWorkerSetStatus, written time.Time) time.Duration {
	if recorded := len(told.Started); recorded < len(want.Started) && recorded < int(told.ReadyReplicas) {
		return pauseMin
	}
	var changed time.Time
	for _, c := range told.Conditions {
		if at := c.LastTransitionTime.Time; at.After(changed) {
			changed = at
		}
	}
	return min(max(written.Sub(changed), pauseMin), pauseMax)
}

// arrived reports whether one of the counts becomes the number of wanted groups.
func arrived(told, want *lwsv1.LeaderWorkerSetStatus, replicas int32) bool {
	arrives := func(have, want int32) bool { return have != replicas && want == replicas }
	return arrives(told.Replicas, want.Replicas) || arrives(told.ReadyReplicas, want.ReadyReplicas) ||
		arrives(told.UpdatedReplicas, want.UpdatedReplicas)
}

// ProgressChanged reports whether a condition about progress came, went or changed its reason.
// Other conditions have events of their own.
func ProgressChanged(before, after []metav1.Condition) bool {
	return slices.ContainsFunc(usual, func(c metav1.Condition) bool {
		was, _ := condition.Of(before, c.Type)
		is, _ := condition.Of(after, c.Type)
		return was.Status != is.Status || is.Status == metav1.ConditionTrue && was.Reason != is.Reason
	})
}

// Unready returns the conditions of a set that is not ready. kind says whether it is Reconciling or Stalled.
func Unready(kind lwsv1.LeaderWorkerSetConditionType, reason, message string) []metav1.Condition {
	return []metav1.Condition{Ceased(Holding(lwsv1.LeaderWorkerSetReady, reason, message)), Holding(kind, reason, message)}
}

// Merge returns the conditions of a status with those that are wanted, all observed at a generation. A transition time
// changes only with the status. The conditions for tools are last: their order then does not depend on which status an
// operator wrote first.
func Merge(have, wanted []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	merged := Kept(have, wanted)
	for _, c := range wanted {
		c.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&merged, c)
	}
	for i := range merged {
		merged[i].ObservedGeneration = generation
	}
	slices.SortStableFunc(merged, func(a, b metav1.Condition) int { return cmp.Compare(forTools(a), forTools(b)) })
	return merged
}

// Kept returns the conditions without Reconciling and Stalled, unless they are wanted: tools go by their presence.
func Kept(have, wanted []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(have), func(c metav1.Condition) bool {
		return forTools(c) > 1 && !condition.IsTrue(wanted, c.Type)
	})
}

// forTools is zero for a condition that people read.
func forTools(c metav1.Condition) int {
	return 1 + slices.Index([]lwsv1.LeaderWorkerSetConditionType{
		lwsv1.LeaderWorkerSetReady, lwsv1.LeaderWorkerSetReconciling, lwsv1.LeaderWorkerSetStalled,
	}, lwsv1.LeaderWorkerSetConditionType(c.Type))
}
