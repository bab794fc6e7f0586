package table

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Deadline says how long a set has made no progress. It is zero where none is expected.
type Deadline struct {
	// Since is when it made progress last, and At when that is too long ago.
	Since, At time.Time
	// IsOver is set from then on. Told is what the status says of it, or empty.
	IsOver bool
	Told   string
}

// deadline folds what objects say. While the status says that the deadline is over, only a change of the spec and a group
// that becomes ready are progress. It needs the workers of ready groups before it is over: they may be the last to be ready.
func deadline(t *Table, allowed time.Duration) (d Deadline, need lws.Need) {
	if t.WantedReady == workload.Replicas(t.Set) && t.TargetReady == t.Current || t.clockStands() {
		return d, ""
	}
	if told, _ := condition.Of(t.SetSnapshot.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing)); told.Reason == lws.CodeProgressDeadlineExceeded {
		d.Told = told.Message
	}
	d.Since = t.progressed(d.Told != "")
	d.At = d.Since.Add(allowed)
	d.IsOver = !t.Now.Before(d.At)
	if d.IsOver && !t.WorkersRead {
		need = lws.NeedWorkers
	}
	return d, need
}

// clockStands reports whether no progress is expected: the set is paused, pods wait behind a gate of another owner, a group
// backs off, or nothing but a stopped group is left.
func (t *Table) clockStands() bool {
	return lws.Paused(t.Set) || t.Delay.IsGated || t.States[lws.GroupBackingOff] > 0 || len(t.ExhaustedBy) > 0 && !t.RollsExhausted()
}

// progressed is when the set made progress last. The clock begins anew when a pause, a gate or a back-off ends, and when a
// set that was ready no longer is. A container that restarts is no progress.
func (t *Table) progressed(isTold bool) time.Time {
	last := t.SetSnapshot.Set.CreationTimestamp.Time
	note := func(at time.Time) {
		if at.After(last) {
			last = at
		}
	}
	note(workload.SpecWritten(t.SetSnapshot.Set))
	for _, kind := range []string{lws.CodePaused, lws.CodeSchedulingGated, lws.CodeBackoff, string(lwsv1.LeaderWorkerSetReady)} {
		ended, _ := condition.Of(t.SetSnapshot.Set.Status.Conditions, kind)
		if note(ended.LastTransitionTime.Time); ended.Status == metav1.ConditionTrue {
			note(t.Now) // it ends now
		}
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		if isTold && !r.IsReady {
			continue
		}
		note(r.Leader.CreationTimestamp.Time)
		for _, pod := range r.AllPods() {
			if r.IsReady {
				note(workload.Condition(pod, corev1.PodReady).LastTransitionTime.Time)
				continue
			}
			for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				if c.RestartCount == 0 && c.State.Running != nil {
					note(c.State.Running.StartedAt.Time)
				}
			}
		}
	}
	return last
}
