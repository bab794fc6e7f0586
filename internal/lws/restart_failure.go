package lws

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Failure is why a group is to be recreated.
type Failure struct {
	Code string
	lwsv1.PodFailure
	// Disrupted is set when the pod has the condition DisruptionTarget: it was drained,
	// preempted or evicted.
	Disrupted bool
}

// Codes of failures. They are stable.
const (
	CodePodRestarted     = "PodRestarted"
	CodePodEnded         = "PodEnded"
	CodePodDeleted       = "PodDeleted"
	CodePodGone          = "PodGone"
	CodeWorkersetDeleted = "StatefulSetDeleted"
	CodeLeaderReplaced   = "LeaderReplaced"
)

// failure returns why the group is to be recreated, or nil. Once the group has started,
// its pods are compared with the record. Until then only pods that exist can tell.
func (d *groupDecision) failure() *Failure {
	r := recordOfLeader(d.Set, d.Index, d.Leader.UID)
	if r == nil {
		return d.failureInStart()
	}
	if f := d.failureOf(d.Leader, r[0].restarts); f != nil {
		return f
	}
	for index := 1; index < len(r); index++ {
		if f := d.failureOfWorker(index, r[index]); f != nil {
			return f
		}
	}
	return nil
}

// failureInStart returns how the group failed before all of its pods ran, or nil.
func (d *groupDecision) failureInStart() *Failure {
	if forgivesAnyStart(d.Set, d.Leader) {
		return nil
	}
	if f := d.failureOf(d.Leader, 0); f != nil {
		return f
	}
	for _, pod := range d.Pods.Members {
		if f := d.failureOf(pod, 0); f != nil && d.counts(pod) {
			return f
		}
	}
	for _, pod := range d.Pods.Ghosts {
		if pod.DeletionTimestamp != nil && d.chained(pod) && d.counts(pod) {
			return d.failureOfLeaving(pod, 0)
		}
	}
	return nil
}

// chained reports whether a worker's chain of controllers ends in the leader.
func (d *groupDecision) chained(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	sts := d.Workers.Member()
	return owner != nil && (owner.UID == d.Leader.UID || sts != nil && owner.UID == sts.UID)
}

// counts reports whether a worker has its leader's revision and an index below the
// group's size. Workers beyond the size go when their StatefulSet is scaled back.
func (d *groupDecision) counts(worker *corev1.Pod) bool {
	_, index := identity.ParentAndOrdinal(worker.Name)
	return worker.Labels[lwsv1.RevisionKey] == d.Leader.Labels[lwsv1.RevisionKey] && int32(index) < workload.SizeOf(d.Leader, d.Set)
}

// failureOfWorker compares one worker with what was recorded of it.
func (d *groupDecision) failureOfWorker(index int, was recorded) *Failure {
	name := identity.LeaderName(d.LeaderName, index)
	is := func(pod *corev1.Pod) bool { return pod.Name == name && recordOf(pod).uid == was.uid }
	if i := slices.IndexFunc(d.Pods.Members, is); i >= 0 {
		return d.failureOf(d.Pods.Members[i], was.restarts)
	}
	if d.Workers.Member() == nil && d.Workers.Orphan() == nil && !d.ownsWorkersDirectly() {
		return d.absent(CodeWorkersetDeleted, name)
	}
	if i := slices.IndexFunc(d.Pods.Ghosts, is); i >= 0 {
		return d.failureOfLeaving(d.Pods.Ghosts[i], was.restarts)
	}
	unowned := slices.Concat(d.Pods.Orphans, d.Pods.Squatters) // a pod that exists is not gone, whatever owns it
	if i := slices.IndexFunc(unowned, is); i >= 0 {
		return d.failureOf(unowned[i], was.restarts)
	}
	return d.absent(CodePodGone, name)
}

// absent is the failure of a pod that left no evidence.
func (d *groupDecision) absent(code, pod string) *Failure {
	return &Failure{Code: code, PodFailure: lwsv1.PodFailure{Pod: pod, Reason: code, At: moment(d.Now)}}
}

// ownsWorkersDirectly reports whether the leader owns workers without a StatefulSet.
func (d *groupDecision) ownsWorkersDirectly() bool {
	return slices.ContainsFunc(d.Pods.Members, func(pod *corev1.Pod) bool { return metav1.IsControlledBy(pod, d.Leader) })
}

// failureOf returns how a pod that exists failed, or nil.
func (d *groupDecision) failureOf(pod *corev1.Pod, restarts uint64) *Failure {
	switch {
	case ended(pod):
		return d.evidence(CodePodEnded, pod)
	case restartsOf(pod) > restarts:
		return d.evidence(CodePodRestarted, pod)
	}
	return nil
}

// failureOfLeaving returns how a terminating pod failed: its containers restarted, or the
// kubelet gave a reason for its end, or else it was deleted. Every pod that is deleted
// ends in a terminal phase; that alone says nothing.
func (d *groupDecision) failureOfLeaving(pod *corev1.Pod, restarts uint64) *Failure {
	switch {
	case ended(pod) && pod.Status.Reason != "":
		return d.evidence(CodePodEnded, pod)
	case restartsOf(pod) > restarts:
		return d.evidence(CodePodRestarted, pod)
	}
	return d.evidence(CodePodDeleted, pod)
}

// ended reports whether the containers of a pod do not start again.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

func isDisrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}
