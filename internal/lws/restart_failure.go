package lws

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// Finding is what a look at a group found of it that its set does not know yet.
// It is bound to the leader's UID, and stays true of it for ever: who remembers it
// may act on it later, for the same life of the set.
type Finding struct {
	Leader identity.Ref
	// Set is the UID of the set, and Revision the key of the leader's.
	Set      types.UID
	Revision string
	Index    int
	// Started is the record of a group that started, or empty.
	Started string
	// Ready is set when all pods of a group that started are ready as well, and none of
	// them was restarted: its set hears of that in any case, and finds the same by itself.
	Ready bool
	// Failure is why the group is to be recreated, or nil.
	Failure *Failure
	// Dismissed is set once the set has said that the failure is nothing to it.
	Dismissed bool
}

// Failure is why a group is to be recreated.
type Failure struct {
	Code string
	lwsv1.PodFailure
	// Doubtful is set where a cache that lags behind would show the same.
	Doubtful bool
}

// Codes of failures. They are stable.
const (
	CodePodRestarted     = "PodRestarted"
	CodePodEnded         = "PodEnded"
	CodePodDeleted       = "PodDeleted"
	CodePodGone          = "PodGone"
	CodeWorkersetDeleted = "StatefulSetDeleted"
)

// finding is what is new about the group, or nil.
func (d *groupDecision) finding() *Finding {
	if !Recreates(d.Set) {
		return nil
	}
	if found := d.lastWords(d.Departed); found != nil {
		return found
	}
	if d.Leader == nil {
		return d.lastWords(d.Leaving)
	}
	if Failed(d.Set, d.Index, d.Leader.UID) != nil {
		return nil
	}
	if d.Finding.Failure != nil && d.Finding.Leader.UID == d.Leader.UID {
		return &d.Finding // what it was compared with may be known to nobody any more
	}
	found := d.findingOf(d.Leader)
	if found.Failure = d.failure(); found.Failure != nil {
		return found
	}
	if isRecorded(d.Set, d.Index, d.Leader.UID) {
		return nil
	}
	found.Started = d.known
	if started := d.started(d.Set); found.Started == "" && started != nil {
		found.Started = started.encode()
	}
	if found.Started == "" {
		return nil
	}
	notReady := func(pod *corev1.Pod) bool { return !podReady(pod) }
	found.Ready = podReady(d.Leader) && !slices.ContainsFunc(d.Pods.Members, notReady) && d.startedInPeace(d.Set) != ""
	return found
}

// lastWords is what a leader on its way out, or gone, left to say: that it failed
// before it was deleted, as by the StatefulSet controller, which clears failed pods
// away.
func (d *groupDecision) lastWords(leader *corev1.Pod) *Finding {
	if leader == nil || !endedBefore(leader) || Failed(d.Set, d.Index, leader.UID) != nil {
		return nil
	}
	if !isRecorded(d.Set, d.Index, leader.UID) && d.forgiven(leader) {
		return nil
	}
	found := d.findingOf(leader)
	found.Failure = d.failed(CodePodEnded, leader)
	return found
}

func (d *groupDecision) findingOf(leader *corev1.Pod) *Finding {
	return &Finding{
		Leader: identity.RefOf(identity.KindPod, leader), Index: d.Index,
		Set: d.Set.UID, Revision: leader.Labels[lwsv1.RevisionKey],
	}
}

// failure is why the group is to be recreated, or nil. Once the group has started
// it is found by comparing what is with what was; until then by what the pods
// that are there tell of themselves, unless that is forgiven.
func (d *groupDecision) failure() *Failure {
	r := d.record()
	if len(r) == 0 {
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

// record is what the group was made of when it started, as its set's status tells
// or as is remembered until it does.
func (d *groupDecision) record() record {
	if r := recordOfLeader(d.Set, d.Index, d.Leader.UID); r != nil {
		return r
	}
	return decodeRecord(d.known)
}

func (d *groupDecision) failureOfWorker(index int, was recorded) *Failure {
	name := identity.LeaderName(d.LeaderName, index)
	is := func(pod *corev1.Pod) bool { return pod.Name == name && recordOf(pod).uid == was.uid }
	if i := slices.IndexFunc(d.Pods.Members, is); i >= 0 {
		return d.failureOf(d.Pods.Members[i], was.restarts)
	}
	if d.Workers.Member() == nil && d.Workers.Orphan() == nil && d.ownedByLeaderDirectly() == 0 {
		return d.absent(CodeWorkersetDeleted, name)
	}
	if i := slices.IndexFunc(d.Pods.Ghosts, is); i >= 0 {
		return d.failureOfLeaving(d.Pods.Ghosts[i], was.restarts)
	}
	// One that lives on under its name is not gone, whoever took what it is known by.
	estranged := slices.Concat(d.Pods.Orphans, d.Pods.Squatters)
	if i := slices.IndexFunc(estranged, is); i >= 0 {
		return d.failureOf(estranged[i], was.restarts)
	}
	if i := slices.IndexFunc(d.Last, is); i >= 0 {
		return d.failureOfGone(d.Last[i], was.restarts)
	}
	return d.absent(CodePodGone, name)
}

// absent is the failure of a pod that is not there to tell of it.
func (d *groupDecision) absent(code, pod string) *Failure {
	return &Failure{Code: code, Doubtful: true, PodFailure: lwsv1.PodFailure{Pod: pod, Reason: code, At: moment(d.Now)}}
}

// ownedByLeaderDirectly counts workers that need no StatefulSet.
func (d *groupDecision) ownedByLeaderDirectly() int {
	return len(slices.DeleteFunc(slices.Clone(d.Pods.Members), func(pod *corev1.Pod) bool { return !metav1.IsControlledBy(pod, d.Leader) }))
}

// failureOf is how a pod that is there failed, or nil.
func (d *groupDecision) failureOf(pod *corev1.Pod, restarts uint64) *Failure {
	switch {
	case Ended(pod):
		return d.failed(CodePodEnded, pod)
	case restartsOf(pod) > restarts:
		return d.failed(CodePodRestarted, pod)
	}
	return nil
}

// failureOfLeaving is how a pod failed that is on its way out, or seems to be: before
// it was deleted, or by that. A pod that is drained from its node ends as failed, too,
// and is no more than deleted.
func (d *groupDecision) failureOfLeaving(pod *corev1.Pod, restarts uint64) *Failure {
	code := CodePodDeleted
	switch {
	case pod.DeletionTimestamp == nil:
	case endedBefore(pod):
		code = CodePodEnded
	case restartsOf(pod) > restarts:
		code = CodePodRestarted
	}
	f := d.failed(code, pod)
	f.Doubtful = pod.DeletionTimestamp == nil
	return f
}

// failureOfGone is how a pod failed that has gone between two looks, by how it was last
// seen: a drained one is no more than deleted, however late the look, and one that ended
// leaves its evidence.
func (d *groupDecision) failureOfGone(last *corev1.Pod, restarts uint64) *Failure {
	f := d.failureOf(last, restarts)
	if f == nil || last.DeletionTimestamp != nil {
		f = d.failureOfLeaving(last, restarts)
	}
	f.Doubtful = true
	return f
}

// Ended tells whether a pod is over: its containers do not start again.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// endedBefore tells whether a pod on its way out was over before it was deleted.
// What ended within its grace period did not fail: a kubelet puts every pod that
// is deleted into a terminal phase before it lets go of it. A pod that is over has
// no grace period, nor has one that its kubelet is just letting go of, and its
// deletion timestamp less that is when it was deleted. Times are of whole seconds:
// what ended in that very second may have ended by it, unless it says why it did. A
// kubelet gives a reason to what it ends of its own accord, as by an eviction.
func endedBefore(leaving *corev1.Pod) bool {
	if leaving.DeletionTimestamp == nil {
		return Ended(leaving)
	}
	grace := time.Duration(orDefault(leaving.DeletionGracePeriodSeconds, 0)) * time.Second
	byDeletion := leaving.DeletionTimestamp.Add(-grace)
	if leaving.Status.Reason != "" {
		byDeletion = byDeletion.Add(time.Second)
	}
	endedSince := func(c corev1.ContainerStatus) bool {
		return c.State.Terminated != nil && !c.State.Terminated.FinishedAt.Time.Before(byDeletion)
	}
	return Ended(leaving) && grace == 0 && !slices.ContainsFunc(leaving.Status.ContainerStatuses, endedSince)
}

// Doubtful tells whether the group is to be looked at in the API server itself
// before it is said to have failed. That a pod ended or was restarted is certain
// whoever tells; that one is not there may only mean that a cache lags behind.
func Doubtful(w GroupSnapshot) bool {
	if w.Leader == nil || !Recreates(w.Set) || w.foundFailed(w.Leader) {
		return false // what is known of it was looked for then
	}
	d := &groupDecision{GroupSnapshot: &w, known: w.known()}
	f := d.failure()
	return f != nil && f.Doubtful
}

// known is the record that is remembered of the group's leader, or empty.
func (w *GroupSnapshot) known() string {
	if w.Leader != nil && w.Finding.Leader.UID == w.Leader.UID {
		return w.Finding.Started
	}
	return ""
}

// explained puts a failure into a few words.
func explained(f lwsv1.PodFailure) string {
	text := "pod " + f.Pod
	if f.Container != "" {
		text += ", container " + f.Container
	}
	text += ": " + f.Reason
	if f.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *f.ExitCode)
	}
	return text
}
