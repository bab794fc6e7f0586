package restart

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
)

// AnnotationKey on a leader pod holds why its group is recreated, as a Decision in JSON.
const AnnotationKey = "lockstep.dev/restart"

// Decision is the decision to recreate a group, with its evidence. The group's reconcile writes it onto the leader pod
// before it deletes anything. The set's reconcile copies it into the status.
type Decision struct {
	// Leader is the UID of the leader pod. A Decision says nothing about another pod.
	Leader types.UID `json:"leader"`
	// Count is the number of failures in a row, this one included if it counts.
	Count int32 `json:"count"`
	// Recreations is how often the group was recreated at this revision, this time included, while
	// maxGroupRestarts was set. It is nil as long as nothing was counted.
	Recreations *int32 `json:"recreations,omitempty"`
	// Exhausted is set if the group is not recreated: it was as often as maxGroupRestarts allows.
	Exhausted bool `json:"exhausted,omitempty"`
	// At is when the failure was found.
	At metav1.Time `json:"at"`
	// HeldUntil is when the next pods of the group may be scheduled at the earliest, or nil.
	HeldUntil *metav1.Time `json:"heldUntil,omitempty"`
	Failure
}

// Of returns the decision to recreate the group of a leader, or nil. A decision from before
// restartsSince is void: the policy was None in between.
func Of(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) *Decision {
	since := set.Status.RestartsSince
	if leader == nil || leader.Annotations[AnnotationKey] == "" || since == nil || !Recreates(set) {
		return nil
	}
	decision := &Decision{}
	if json.Unmarshal([]byte(leader.Annotations[AnnotationKey]), decision) != nil || decision.Leader != leader.UID || decision.At.Before(since) {
		return nil
	}
	return decision
}

// Decide returns the decision to recreate the group for a failure.
func (g Group) Decide(failure *Failure, now time.Time) *Decision {
	stays := g.Leader.DeletionTimestamp == nil // else its StatefulSet replaces it, whatever its group failed of
	limit, recreations := g.Set.Spec.LeaderWorkerTemplate.MaxGroupRestarts, recreations(g.Set, g.Index, g.Leader)
	decision := &Decision{
		Leader: g.Leader.UID, At: moment(now), Failure: *failure, Recreations: recreations,
		Count: inARow(g.Set, g.Index, g.Leader.Labels[lwsv1.RevisionKey], now),
		// A disruption is no failure of the group: it is always recreated then.
		Exhausted: stays && !failure.Disrupted && limit != nil && ptr.Deref(recreations, 0) >= *limit,
	}
	if limit != nil && stays && !decision.Disrupted && !decision.Exhausted {
		decision.Recreations = ptr.To(ptr.Deref(recreations, 0) + 1)
	}
	if ReplacesUncounted(g.Set, g.Index, g.Leader) {
		decision.Count++
	}
	if !decision.Disrupted {
		decision.Count++
	}
	if g.HoldsNames && failure.isDrained {
		decision.hold(now)
	}
	if g.KeepsLogs {
		decision.AwaitLogs()
	}
	return decision
}

func (d *Decision) hold(now time.Time) { d.HeldUntil = new(metav1.NewTime(moment(now).Add(heldFor))) }

// RenewsHold lets the hold begin again, once, where half of it is over before the group is deleted: no operator ran, or
// others were deleted first. It reports whether it did.
func (d *Decision) RenewsHold(now time.Time) (renewed bool) {
	if renewed = d.HeldUntil != nil && d.HeldUntil.Sub(d.At.Time) <= heldFor && !now.Before(d.HeldUntil.Add(-heldFor/2)); renewed {
		d.hold(now)
	}
	return renewed
}

// Annotation returns the value of the annotation for the decision.
func (d *Decision) Annotation() string {
	text, _ := json.Marshal(d) // it has no field that cannot be encoded
	return string(text)
}

// Due is when the group is deleted: at once for the first failure, and after the back-off
// of the set for each one that follows. One that exhausts the budget is not waited for.
func (d *Decision) Due(set *lwsv1.LeaderWorkerSet) metav1.Time {
	if wait := backoffOf(set).After(d.Count); wait > 0 && !d.Disrupted && !d.Exhausted {
		return metav1.NewTime(d.At.Add(wait + time.Second)) // At has no fraction of a second
	}
	return d.At
}

// BackoffText says why the restart of a group waits, and until when. It is empty for one that waits for no back-off.
func (d *Decision) BackoffText(set *lwsv1.LeaderWorkerSet, group string) string {
	due := d.Due(set)
	if !due.After(d.At.Time) {
		return ""
	}
	return fmt.Sprintf("group %s failed %d times in a row and is recreated at %s (%s)", group, d.Count, due.UTC().Format(time.RFC3339), d.Text())
}

// backoffOf returns the back-off of a set. Admission refuses a value that cannot be read; here it is the default, as without one.
func backoffOf(set *lwsv1.LeaderWorkerSet) backoff.Policy {
	policy, _ := backoff.Parse(set.Annotations[backoff.AnnotationKey])
	return policy
}

// inARow returns how many failures the next one adds to: those at the same revision, if
// the last restart is less than the reset time ago.
func inARow(set *lwsv1.LeaderWorkerSet, index int, revision string, now time.Time) int32 {
	if last := Entry(set, index); last != nil && last.Revision == revision && now.Before(last.DueAt.Add(backoffOf(set).Reset)) {
		return last.Count
	}
	return 0
}

// noteLength is how many characters the note of an event has at most.
const noteLength = 120

// Cause is what a failure says about the group.
type Cause string

// Causes of failures. They are stable.
const (
	Crash      Cause = "Crash"      // a container or a pod failed by itself
	LostNode   Cause = "LostNode"   // the node of a pod is gone or does not answer
	Disruption Cause = "Disruption" // a pod was drained, preempted or evicted
	Request    Cause = "Request"    // a user asked to recreate the group
	Deletion   Cause = "Deletion"   // an object was deleted or replaced: the status does not say why
	Unknown    Cause = "Unknown"    // the status has no room for the evidence
)

// outcomes say what became of a pod and why, by the reason of its disruption or of its failure. Any other pod failed by
// itself.
var outcomes = map[string]struct {
	verb  string
	cause Cause
}{
	reasonEvicted:                   {"was drained", Disruption},
	"PreemptionByScheduler":         {"was preempted", Disruption},
	"Preempting":                    {"was preempted", Disruption},
	"DeletionByTaintManager":        {"lost its node", LostNode},
	"DeletionByPodGC":               {"lost its node", LostNode},
	"NodeLost":                      {"lost its node", LostNode},
	"DeletionByDeviceTaintManager":  {"lost its device", Disruption},
	"TerminationByKubelet":          {"was evicted by the kubelet", Disruption},
	"Evicted":                       {"was evicted by the kubelet", Disruption},
	"Terminated":                    {"was evicted by the kubelet", Disruption}, // its node shut down
	string(corev1.DisruptionTarget): {"was evicted", Disruption},
	string(TerminationTarget):       {"was evicted by Kueue", Disruption},
	CodeRequested:                   {"was asked to restart", Request},
	CodePodDeleted:                  {"was deleted", Deletion},
	CodePodGone:                     {"is gone", Deletion},
	CodeWorkersetDeleted:            {"lost its StatefulSet", Deletion},
	CodeLeaderReplaced:              {"was replaced", Deletion},
	"":                              {"failed", Unknown},
}

// CauseOf returns the cause that the status of a set records of a failure.
func CauseOf(f lwsv1.PodFailure) Cause { return cmp.Or(outcomes[f.Reason].cause, Crash) }

// Note says which pod failed, how and where, and what became of its group. Names are cut if there is no room for them.
func (d *Decision) Note(leader *corev1.Pod, group string) string {
	role, end := "Worker", fmt.Sprintf(": group %s is recreated", group)
	whole := d.note(role, noteLength) + fmt.Sprintf(", deleted %s to recreate group %s", leader.Name, group)
	switch {
	case d.Pod == leader.Name:
		role = "Leader"
	case utf8.RuneCountInString(whole) <= noteLength:
		return whole
	}
	for width := noteLength; ; width-- {
		if note := d.note(role, width) + end; utf8.RuneCountInString(note) <= noteLength || width == 1 {
			return note
		}
	}
}

func (d *Decision) note(role string, width int) string {
	f, cause := d.PodFailure, cmp.Or(d.Disruption, d.Reason)
	var details []string
	if f.Container != "" {
		details = append(details, "container "+cut(f.Container, width), cut(f.Reason, width))
	} else {
		details = append(details, cut(cause, width))
	}
	if f.ExitCode != nil {
		details = append(details, fmt.Sprintf("exit code %d", *f.ExitCode))
	}
	if f.Node != "" {
		details = append(details, "node "+cut(f.Node, width))
	}
	return fmt.Sprintf("%s %s %s (%s)", role, cut(f.Pod, width), cmp.Or(outcomes[cause].verb, "failed"), strings.Join(details, ", "))
}

// cut shortens a name to a width. Its begin and its end stay: pods are told apart by the end.
func cut(name string, width int) string {
	if len(name) <= width {
		return name
	}
	return name[:(width-1)/2] + "…" + name[len(name)-width/2:]
}
