package lws

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// SetSnapshot is everything that a decision about a set may know. What it
// points to belongs to a cache and must not be changed.
type SetSnapshot struct {
	Now time.Time
	Set *lwsv1.LeaderWorkerSet
	// Beyond says what the set has that this version lacks. The rest is not read then.
	Beyond []string

	// StatefulSet holds what bears the leader StatefulSet's name.
	StatefulSet identity.Claim[*appsv1.StatefulSet]
	// Deployment holds what has the leader Deployment's name, in a set of Hash groups.
	// ReplicaSets are the UIDs of those that it controls: leaders belong to them.
	Deployment  identity.Claim[*appsv1.Deployment]
	ReplicaSets identity.Claimant
	// Leaders holds what bears the names of leader pods, judged against the
	// StatefulSet above, adopted or about to be, or else the ReplicaSets.
	Leaders identity.Claim[*corev1.Pod]
	// Misspelt are pods such as w-01 that the StatefulSet adopted in place of w-1.
	Misspelt []*corev1.Pod
	// Groups has an entry for each leader that is a member, by rising index.
	Groups []Group
	// Vacant has an entry for each group that is wanted and has no leader, by rising index: its workers of an earlier
	// life may still stand. In a Hash set, it has those that have pods and no leader.
	Vacant []Group
	// Service holds what bears the name of the Shared headless Service.
	Service identity.Claim[*corev1.Service]
	// Revisions holds what bears the set's revision labels.
	Revisions identity.Claim[*appsv1.ControllerRevision]
	// HistoryRead is set when Revisions includes the history.
	HistoryRead bool

	// GangMissing says why the objects of the gang scheduler that the set or any of
	// its groups is handed to cannot be read, or is empty.
	GangMissing string
	// Scheduler places the set if it has spec.scheduling, or is empty.
	Scheduler string
	// Workload holds what has the name of the set's Workload, and PodGroup what has that of the
	// PodGroup of all its pods. They are filled only for a set that Kubernetes' own scheduler places.
	Workload, PodGroup identity.Claim[*unstructured.Unstructured]
	// PodGroups holds all of Kubernetes' own scheduler that have the label of the set. PodGroupsInUse are the
	// names of those that pods are in, or that leaders need: as memory shows the pods, or live if PodGroupsLive.
	PodGroups      identity.Claim[*unstructured.Unstructured]
	PodGroupsInUse map[string]bool
	PodGroupsLive  bool
	// LeaderVolumes holds what bears the names of leaders' volume claims. It is filled only while leaders are missing.
	LeaderVolumes identity.Claim[*volumes.PVC]
	// PVCs are those of the set's leaders and workers.
	PVCs identity.Claim[*volumes.PVC]
	// Evictions says what limits evictions of the set's pods. It is nil where no set of this process asks for a budget.
	Evictions *workload.Evictions
	// ProgressDeadline is that of sets without the annotation, or zero.
	ProgressDeadline time.Duration
	// WorkersRead is set when Groups have the pods of groups that are ready, too.
	WorkersRead bool
	// Draining are the groups beyond the StatefulSet's replicas that still have pods and PVCs.
	Draining map[int]bool

	Lives identity.Lives
	Vigil Vigil
	// Refusal is what the API server said of the present spec, if it refused it.
	Refusal action.Refusal
	// Refused is what it last said of what groups need, and of what the set can do without, by rising index.
	Refused []action.Refused
	// Stalled is since when the leader StatefulSet has lacked pods and created none, or zero.
	Stalled time.Time
	// StatusWritten is when this process last wrote the set's status, or zero.
	StatusWritten time.Time
}

// RefusedSpec is what the API server refuses of the spec, or empty. The spec is left alone until
// the pause is over or the spec changes.
func (w *SetSnapshot) RefusedSpec() string {
	if w.Refusal.Sentence == "" || !w.Now.Before(w.Refusal.Again()) {
		return ""
	}
	return action.RefusedMessage(w.Refusal)
}

// GroupSnapshot is everything that a decision about one group may know.
type GroupSnapshot struct {
	Now time.Time
	// Set is nil for the rest of a group whose set is gone.
	Set *lwsv1.LeaderWorkerSet
	// Beyond says what the set has that this version lacks. The rest is not read then.
	Beyond []string
	Group
	// LeaderSet is the leader StatefulSet if it is a member, else nil.
	LeaderSet *appsv1.StatefulSet
	// Deployment is the leader Deployment if it is a member, else nil.
	Deployment *appsv1.Deployment
	// Kept are the terminating pods of the group whose finalizer keeps them as evidence.
	Kept []*corev1.Pod
	// Leaving is the leader while it is on its way out, else nil: Leader is then nil.
	Leaving *corev1.Pod
	// Former is the terminating pod of the leader's name that LeaderSet does not control, else nil.
	// FormerOwner is the leader StatefulSet that controls it, terminating or to be adopted, or nil.
	Former      *corev1.Pod
	FormerOwner *appsv1.StatefulSet
	// Workload holds what has the name of the set's Workload. It is filled only for a group with a
	// leader whose set Kubernetes' own scheduler places.
	Workload identity.Claim[*unstructured.Unstructured]
	// Revisions holds what bears the set's revision labels. It is filled only where the
	// group has something to be made, or a policy to be judged by, that a revision says.
	Revisions identity.Claim[*appsv1.ControllerRevision]
	// Sought is set when the revision that the leader runs was looked for.
	Sought bool
	// Live is set when the leader, the workers and their StatefulSet were read live.
	Live bool
	// NodeLabels are those of the leader's node, when the placement of the workers depends on them.
	NodeLabels map[string]string
	Lives      identity.Lives
	Vigil      Vigil
	// KeepsLogs is set where the logs of failed containers are kept.
	KeepsLogs bool
	// HoldsNames is set if no pod under the names of the group is scheduled for a while after one was drained.
	HoldsNames bool
}

// Group is one leader and what bears the names derived from it.
type Group struct {
	workload.Identity
	// Leader is the leader pod if it is a member, else nil.
	Leader *corev1.Pod
	// Workers holds what bears the worker StatefulSet's name.
	Workers identity.Claim[*appsv1.StatefulSet]
	// Pods holds what bears the names of worker pods. A set snapshot fills it
	// only for groups whose worker StatefulSet is not a member or has pods that are not ready.
	Pods identity.Claim[*corev1.Pod]
	// Misspelt are pods such as w-0-01 that the worker StatefulSet adopted in place of w-0-1. A set snapshot has them.
	Misspelt []*corev1.Pod
	// Service holds what bears the name of the group's own headless Service.
	Service identity.Claim[*corev1.Service]
	// Gang holds what bears the name of the object that the group's gang scheduler
	// knows it by. It is filled only for groups that were handed to one.
	Gang identity.Claim[*unstructured.Unstructured]
	// PodGroups are those of Kubernetes' own scheduler that the leader needs.
	PodGroups identity.Claim[*unstructured.Unstructured]
	// GangMissing says why that scheduler's objects cannot be read, or is empty.
	GangMissing string
	// Stalled is since when the worker StatefulSet has lacked pods and created none, or zero.
	Stalled time.Time
	// Volumes holds what bears the names of workers' volume claims. A set snapshot
	// fills it only for groups that are vacant or incomplete.
	Volumes identity.Claim[*volumes.PVC]
}

// Vigil is when objects came and went that a set or group waits for, as this process saw it.
// It only delays or hastens writes: a process that starts without it waits a little longer.
type Vigil struct {
	// Seen is when each of them was first read, and Gone is when each owner that is gone was first missed.
	Seen, Gone map[types.UID]time.Time
	// Moved is when one of them last came or went, or zero.
	Moved time.Time
}
