package table

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/rollout"
)

// Row says what a rule of the set may ask of one group. Of makes one for each group, once: counts, conditions, places
// of a rollout and metrics are folds over rows.
type Row struct {
	*lws.Group
	// Size is how many pods the group has, or is to have.
	Size int32
	// isWanted is set unless the group is above what the set asks for, and isCurrent unless the partition keeps its revision.
	isWanted, isCurrent bool
	// isComplete is set if the leader exists, and the worker StatefulSet where the size asks for one.
	isComplete bool
	// IsReady is set if every pod is ready, and the group is neither to be recreated nor stopped.
	IsReady bool
	// isOutdated is set if the leader is of another revision or placement than its StatefulSet or Deployment.
	isOutdated bool
	// isAtTarget is set if all parts are at the target. isUpdated is not while a template waits, or leaders are displaced.
	isAtTarget, isUpdated bool
	// IsStopped is set if the group exhausted maxGroupRestarts.
	IsStopped bool
	// HasStarted is set if the status has the record of the leader.
	HasStarted bool
	// Decision is the one to recreate the group, or nil.
	Decision *restart.Decision
	// Place is the state of the group in a rollout.
	Place rollout.Place
	// state is the first that applies.
	state lws.GroupState
}

// AllPods returns the leader and its workers as far as the snapshot has them.
func (r *Row) AllPods() []*corev1.Pod { return append([]*corev1.Pod{r.Leader}, r.Pods.Owned...) }

// Delay has the reason and the message of what groups of a set wait for. isNear is set while a pod lacks a node, and not
// for long enough, and isGated while one waits behind a scheduling gate.
type Delay struct {
	Code, Message   string
	IsNear, IsGated bool
}

// Maker answers what differs between Ordinal sets, whose leaders a StatefulSet creates, and Hash sets, whose leaders a
// Deployment creates.
type Maker interface {
	// Desired is the object that makes the leaders as the spec wants it, and its template.
	Desired() (action.Object, *corev1.PodTemplateSpec)
	// Differs reports whether an apply of it is due, and Record is what it says of that apply.
	Differs(desired action.Object, applied string) bool
	Record(desired action.Object, applied string) string
	// Explain gives that apply its reason, its preconditions, and the events of a rollout that it continues.
	Explain(*action.Apply)
	// Admit lets leaders be scheduled that wait for room.
	Admit() lws.Plan
	// Repair does what its controller leaves undone.
	Repair() lws.Plan

	// AsksFor reports whether the set asks for a group, and for the present revision of it.
	AsksFor(*Row) (isWanted, isCurrent bool)
	// Needed returns those of the objects that have names of leaders which the set needs.
	Needed([]lws.Object) []lws.Object
	// LeftBehind returns workers that no leader adopts.
	LeftBehind() []lws.Object
	// IsOutdated reports whether a leader is to be replaced by one of another revision or placement.
	IsOutdated(leader *corev1.Pod) bool
	// Runnable are the keys of the revisions that leaders run or may be created at, if they are known.
	Runnable() (keys map[string]bool, known bool)
	// Correct adds to counts what no row says.
	Correct(*lws.Standing)
	// Rolling returns where a rolling update stands, and where it goes next.
	Rolling() (rollout.State, rollout.Course)
	// Moves reports whether a rollout replaces groups, or will without a change by a user.
	Moves() bool
	// Places returns how many groups there are or will be, and whether the group of a leader without a row is one of them.
	Places() (n int32, isPlace func(leader string) bool)
	// Missing returns how many leaders cannot be created, and what should create them.
	Missing() (code, object string, n int32)
	// InService returns the sizes of the groups that are in the PodGroup of all pods, and how many more there is room for.
	InService() (sizes []int32, room int32)
	// Settle marks records of groups that a rollout replaces, and drops those of groups that do not come back, or gives
	// them to others.
	Settle(*restart.Status)
}

// namesWait says what holds back the whole set: objects of a previous incarnation under names that it needs first.
type namesWait struct {
	// whole are those under its own name, and leaders those under names of its leaders.
	whole, leaders []lws.Object
	// holds is set while nothing new may be created under the set's names.
	holds bool
	until time.Time
}

// Target is the revision that groups should be at, with what is written for it first.
type Target struct {
	// Key is its key, or empty while unknown. revision is it, once it exists or is created.
	Key      string
	Revision *identity.Ref
	number   int64 // 0 while unknown
	plan     lws.Plan
}

// Table is what the rules of a set read: the snapshot, and values derived from it in the
// order below. Only Of sets them.
type Table struct {
	*lws.SetSnapshot
	effectiveSpec
	// Standing counts the rows.
	lws.Standing
	// Maker makes the leaders.
	Maker Maker
	// Set is the effective set, in place of that of the snapshot.
	Set *lwsv1.LeaderWorkerSet

	// ExhaustedBy has the leaders of groups that exhausted maxGroupRestarts, by index.
	ExhaustedBy map[int]*corev1.Pod
	// RefusalText says why the spec is left alone, or is empty.
	RefusalText string
	// Hindrance says what is refused that costs a part of the set only, or is empty.
	Hindrance string
	// wait is for the leaders of a previous incarnation. Held is set when nothing new may be created under the set's names yet.
	wait namesWait
	Held bool
	// Target is the revision that groups should be at.
	Target Target
	// IsDisplaced is set if the leaders' template has another placement than the set.
	IsDisplaced bool
	// Rows are the groups that have leaders, vacant are others of which something is known, and unknown is the state of
	// the rest.
	Rows, vacant []Row
	unknown      lws.GroupState
	// Restarted is what the status is to say about restarts.
	Restarted restart.Status
	// Waiting is what is said about objects of a previous incarnation, or the zero value.
	Waiting lws.PreviousWait
	// Conflict names the foreign objects under names that the set needs, or is empty.
	Conflict string
	// Unresolved says why workers cannot resolve their leaders, or is empty.
	Unresolved action.Reason
	// Delay is what groups wait for that the operator cannot do.
	Delay Delay
	// Deadline says how long the set has made no progress.
	Deadline Deadline
	// Rollout is where a rolling update stands, and Course where it goes next.
	Rollout rollout.State
	Course  rollout.Course
	// Limit says how many pods of the set must stay, or is nil. budgetRefused is what is refused of its budget.
	Limit         *Limit
	budgetRefused string
	// PVCsPending is set while PVCs would go with what owns them: no leader is replaced then.
	PVCsPending bool
}

// effectiveSpec is the set that the rules judge by, in place of the one in the snapshot.
type effectiveSpec struct {
	// set has the volumeClaimTemplates of the leader StatefulSet and, while the rollout is paused,
	// the template and network of its leaders. Live has the template of the spec.
	set, Live *lwsv1.LeaderWorkerSet
	// IsPending is set while the spec asks for a template that is not taken in.
	IsPending bool
	// OtherClaims says that the volumeClaimTemplates of the spec are not those of the set, or is empty.
	OtherClaims string
}

// TargetKey is the revision key that the spec asks for, or empty while that is
// unknown because no revision is made of it yet.
func (t *Table) TargetKey() string {
	if t.IsPending {
		return ""
	}
	return t.Target.Key
}

// LeadersAndLeaving returns the leaders of the set's StatefulSet or ReplicaSets, terminating ones too.
func (t *Table) LeadersAndLeaving() []*corev1.Pod {
	return slices.Concat(t.Leaders.Owned, slices.DeleteFunc(slices.Clone(t.Leaders.Previous), func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil || !t.makes(pod)
	}))
}

// makes reports whether a leader belongs to what makes the leaders of the set.
func (t *Table) makes(leader *corev1.Pod) bool {
	owner, sts := metav1.GetControllerOfNoCopy(leader), t.StatefulSet.Own()
	return owner != nil && (sts != nil && owner.UID == sts.UID || slices.Contains(t.ReplicaSets, owner.UID))
}

// Title names the target by number and key.
func (t Target) Title() string { return revision.Title(t.number, t.Key) }

// LeadersKey is the revision key of the leader StatefulSet or Deployment, or empty without one. No other
// object says which revision is current.
func (t *Table) LeadersKey() string {
	if owner := t.LeadersOwner(); owner != nil {
		return owner.Key()
	}
	return ""
}

// All returns every row.
func (t *Table) All() []Row { return slices.Concat(t.Rows, t.vacant) }

// FoundTemplate reports whether another implementation may have written the template of a
// leader StatefulSet or Deployment: this operator never wrote it, or kept it as found.
func (t *Table) FoundTemplate(live *lws.LeadersOwner) bool {
	annotations := live.GetAnnotations()
	return annotations[lws.AppliedAnnotationKey] == "" || annotations[lws.AsFoundAnnotationKey] == live.Key()
}

// isDisplaced reports whether the leaders' template has another placement than the set. To the StatefulSet controller
// that is a new template: the rollout starts with no group replaced. A template that was found may say it in another
// way: the metadata has the set's annotation that it was written for.
func (t *Table) isDisplaced(owner *lws.LeadersOwner) bool {
	return owner != nil && slices.ContainsFunc(workload.Placements, func(placement string) bool {
		return owner.Template.Annotations[placement] != workload.LeadersPlacement(t.Set, placement) &&
			(!t.FoundTemplate(owner) || owner.GetAnnotations()[placement] != t.Set.Annotations[placement])
	})
}
