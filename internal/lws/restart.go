package lws

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/identity"
)

// Restart is the decision to recreate a group, with its evidence. The group's reconcile
// writes it onto the leader pod before it deletes anything. The set's reconcile copies it
// into the status.
type Restart struct {
	// Leader is the UID of the leader pod. A Restart says nothing about another pod.
	Leader types.UID `json:"leader"`
	// Count is the number of failures in a row, this one included if it counts.
	Count int32 `json:"count"`
	// Disrupted is set for a pod with the condition DisruptionTarget. Such a failure does
	// not count and waits for no back-off.
	Disrupted bool `json:"disrupted,omitempty"`
	// At is when the failure was found.
	At metav1.Time `json:"at"`
	// Failure is the evidence.
	Failure lwsv1.PodFailure `json:"failure"`
}

// clockSkew is the largest expected difference between the clocks of two operators.
const clockSkew = time.Minute

// RestartOf returns the decision to recreate the group under this leader, or nil.
// Without the annotation the status answers: operators before the annotation wrote
// pending restarts there alone.
func RestartOf(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod) *Restart {
	if leader == nil || !Recreates(set) {
		return nil
	}
	if restart := annotatedRestart(set, leader); restart != nil {
		return restart
	}
	last := RestartsOf(set, index)
	if last == nil || last.Leader != leader.UID {
		return nil
	}
	restart := &Restart{Leader: last.Leader, Count: last.Count, At: last.FailedAt, Disrupted: !last.DueAt.After(last.FailedAt.Time)}
	if n := len(last.Failures); n > 0 {
		restart.Failure = last.Failures[n-1]
	}
	return restart
}

// annotatedRestart reads the annotation. A decision from before restartsSince is void:
// the policy was None in between.
func annotatedRestart(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) *Restart {
	text, found := leader.Annotations[RestartAnnotationKey]
	if !found {
		return nil
	}
	restart := &Restart{}
	if json.Unmarshal([]byte(text), restart) != nil || restart.Leader != leader.UID {
		return nil
	}
	if since := set.Status.RestartsSince; since == nil || restart.At.Before(since) {
		return nil
	}
	return restart
}

// due is when the group is deleted: at once for the first failure, and after the back-off
// of the set for each one that follows.
func (r *Restart) due(set *lwsv1.LeaderWorkerSet) metav1.Time {
	wait := backoffOf(set).After(r.Count)
	if wait == 0 || r.Disrupted {
		return r.At
	}
	return metav1.NewTime(r.At.Add(wait + time.Second)) // At has no fraction of a second
}

// waits reports whether the back-off still holds the group back. A time far in the future
// comes from a clock that was put back.
func (r *Restart) waits(set *lwsv1.LeaderWorkerSet, now time.Time) bool {
	return now.Before(r.due(set).Time) && !r.At.After(now.Add(clockSkew))
}

// backoffOf returns the back-off of a set. Admission refuses a value that cannot be read;
// here it counts as absent.
func backoffOf(set *lwsv1.LeaderWorkerSet) backoff.Policy {
	value, given := set.Annotations[backoff.AnnotationKey]
	if !given {
		return backoff.Default
	}
	policy, err := backoff.Parse(value)
	if err != nil {
		return backoff.Default
	}
	return policy
}

// failuresInARow returns how many failures the next one adds to: those at the same
// revision, if the last restart is less than the reset time ago.
func failuresInARow(set *lwsv1.LeaderWorkerSet, index int, revision string, now time.Time) int32 {
	last := RestartsOf(set, index)
	if last == nil || last.Revision != revision || !now.Before(last.DueAt.Add(backoffOf(set).Reset)) {
		return 0
	}
	return last.Count
}

// restart recreates a group that failed: it writes the decision onto the leader, then
// deletes the whole group. It reports whether the rules after it go on.
//
// A crash between the two writes loses nothing: the next reconcile finds the annotation.
func (d *groupDecision) restart() bool {
	switch {
	case !Recreates(d.Set):
		return true
	case d.Leader == nil:
		d.leaving()
		return d.plan.Needs == ""
	}
	restart := RestartOf(d.Set, d.Index, d.Leader)
	isNew := restart == nil
	if isNew {
		failure := d.failure()
		if failure == nil || !d.answered(d.Leader) {
			return d.plan.Needs == ""
		}
		if !d.Live {
			d.plan.Needs = NeedLivePods
			return false
		}
		restart = d.decideRestart(d.Leader, failure)
	}
	if restart.waits(d.Set, d.Now) {
		until := restart.due(d.Set)
		d.plan.wait(Wait{Reason: because(CodeBackoff, backoffText(d.Index, restart.Count, until, restart.Failure)), Until: until.Time})
		return false
	}
	d.deleteGroup(d.Leader, restart, isNew)
	return false
}

// leaving ends the workers of a leader that is terminating, and keeps the evidence on it.
// Leaders that are scaled away or rolled are left to the garbage collector: it costs no
// writes.
func (d *groupDecision) leaving() {
	if !d.endsAtOnce() {
		return
	}
	if d.leavingIsFailure() {
		d.decideRestart(d.Leaving, d.failureOfLeaving(d.Leaving, d.restartsBefore(d.Leaving)))
	}
	if d.plan.Needs == "" {
		d.deleteGroup(d.Leaving, nil, false)
	}
}

// leavingIsFailure reports whether the end of the leader is a failure of the group that is
// not decided yet.
func (d *groupDecision) leavingIsFailure() bool {
	if RestartOf(d.Set, d.Index, d.Leaving) != nil {
		return false
	}
	if recordOfLeader(d.Set, d.Index, d.Leaving.UID) == nil && forgivesAnyStart(d.Set, d.Leaving) {
		return false
	}
	return d.answered(d.Leaving)
}

// decideRestart plans to write the decision onto the leader.
func (d *groupDecision) decideRestart(leader *corev1.Pod, failure *Failure) *Restart {
	restart := &Restart{
		Leader: leader.UID, Disrupted: failure.Disrupted, At: moment(d.Now), Failure: failure.PodFailure,
		Count: failuresInARow(d.Set, d.Index, leader.Labels[lwsv1.RevisionKey], d.Now),
	}
	if replacesUncounted(d.Set, d.Index, leader) {
		restart.Count++
	}
	if !restart.Disrupted {
		restart.Count++
	}
	text, err := json.Marshal(restart)
	if err != nil {
		panic(fmt.Sprintf("encode a restart: %v", err)) // it has no field that cannot be encoded
	}
	d.plan.do(action.Annotate{
		Object:      identity.RefOf(identity.KindPod, leader),
		Annotations: map[string]string{RestartAnnotationKey: string(text)},
		Because:     because(CodeRestart, fmt.Sprintf("group %d failed: %s", d.Index, explained(failure.PodFailure))),
		Tell:        action.Telling{Failures: []string{failure.Code}},
	})
	return restart
}
