package lws

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// ConditionBackoff is the type of the condition for groups whose restart waits.
	ConditionBackoff = "RestartBackOff"
	// ConditionUnrecorded is the type of the condition for an API server that drops the
	// fields of the status that restarts need.
	ConditionUnrecorded = "RestartsUnrecorded"
)

// prunedAgain is how soon the status is written again that the API server dropped fields
// of: a new definition changes no object that the operator watches.
const prunedAgain = 30 * time.Second

const pruningText = "the installed CustomResourceDefinition drops status.started, status.restarts and status.restartsSince: " +
	"failed groups are not recreated; install the present definition with: lockstep install"

// restartStatus copies decisions from leader pods into the status, counts leaders that
// were replaced without one, and records the groups that started.
func (d *setDecision) restartStatus() restart.Status {
	status := d.Set.Status
	if !restart.Recreates(d.live) {
		// A group whose leader is still there was not recreated: its failure is void. Nothing is limited, so
		// that nothing is counted: a group that is recovered waits for that.
		restarts := slices.DeleteFunc(slices.Clone(status.Restarts), func(failed lwsv1.GroupRestarts) bool {
			return slices.ContainsFunc(d.rows, func(r row) bool { return r.Leader.UID == failed.Leader })
		})
		for i := range restarts {
			restarts[i].Recreations = nil
		}
		return restart.Status{Restarts: restarts}
	}
	next := restart.Status{Started: status.Started, Restarts: status.Restarts, Since: d.since()}
	next.Count(d.live, d.leadersAndLeaving(), d.Now)
	var started []lwsv1.StartedGroup
	for i := range d.rows {
		r := &d.rows[i]
		if entry := restart.Started(d.live, r.Index, r.Leader, r.Pods.Owned, d.forgivesStart); entry != nil {
			started = append(started, *entry)
		}
	}
	next.Record(started)
	return next
}

// expectReplacements marks the records of leaders that the rollout replaces. It does so before the partition is
// lowered: a new template starts with no group replaced. They are unmarked once the StatefulSet controller has
// observed a template that keeps them.
func (d *setDecision) expectReplacements() {
	isSettled := d.rollout.Observed && !d.rollout.Changed
	var leaders []*corev1.Pod
	isReplaced := map[int]bool{}
	for i, p := range d.rollout.Places {
		isNext := p.Index >= d.rollout.Keep && (!d.rollout.Paused || p.Index >= d.rollout.Partition)
		isReplaced[int(p.Index)] = isNext && p.Outdated
		if isNext && p.Outdated || isSettled {
			leaders = append(leaders, d.rows[i].Leader)
		}
	}
	d.restarted.Expect(d.live, leaders, func(index int) bool { return isReplaced[index] })
}

// settle implements maker: it moves entries of groups that are gone to the groups that replace them: a new key does not end a back-off, nor
// renew a budget. Entries that no group can inherit are dropped.
func (d *deploymentMaker) settle(s *restart.Status) {
	d.gated = d.replacements()
	if d.Deployment.Own() == nil {
		return
	}
	owners := restart.Owners{Living: map[int]bool{}, Kept: map[int]bool{}, Vacant: int(d.gated.room.Allowed) - len(d.gated.admitted)}
	for _, leader := range d.Leaders.Owned {
		owners.Living[workload.IndexOf(leader)] = true
		if !workload.IsGated(leader) {
			owners.Vacant--
		}
	}
	for index := range d.exhaustedBy {
		owners.Kept[index] = true
	}
	for _, leader := range d.gated.admitted {
		owners.Heirs = append(owners.Heirs, restart.Heir{Index: workload.IndexOf(leader), Revision: leader.Labels[lwsv1.RevisionKey]})
	}
	s.Inherit(owners)
}

// since dates the beginning. A set that has leaders by now may have had them, and their
// restarts, under another implementation or another policy.
func (d *setDecision) since() *metav1.Time {
	if d.Set.Status.RestartsSince != nil {
		return d.Set.Status.RestartsSince
	}
	since := metav1.NewTime(d.Now.Truncate(time.Second).Add(time.Second))
	if len(d.Groups)+len(d.Leaders.Previous)+len(d.Leaders.Orphans) == 0 {
		since = d.Set.CreationTimestamp
	}
	return &since
}

func (d *setDecision) forgivesStart(leader *corev1.Pod) bool {
	return restart.ForgivesStart(d.live, madeUnder(d.live, d.Revisions, leader.Labels[lwsv1.RevisionKey]), leader)
}

// leadersAndLeaving returns the leaders of the set's StatefulSet or ReplicaSets, terminating ones too.
func (d *setDecision) leadersAndLeaving() []*corev1.Pod {
	return slices.Concat(d.Leaders.Owned, slices.DeleteFunc(slices.Clone(d.Leaders.Previous), func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil || !d.Makes(pod)
	}))
}

// pruned returns a message if the API server drops fields of the status, or is empty: the
// status was written here for this generation, and restartsSince is not in it.
func (d *setDecision) pruned() string {
	owner := d.leadersOwner()
	if restart.Recreates(d.live) && d.Set.Status.RestartsSince == nil && d.Set.Status.ObservedGeneration == d.live.Generation &&
		owner != nil && metav1.IsControlledBy(owner, d.Set) && owner.GetAnnotations()[AppliedAnnotationKey] != "" {
		return pruningText
	}
	return ""
}

// backoffText names the failed groups whose restart waits for the back-off, or is empty.
func (d *setDecision) backoffText() string {
	var texts []string
	for i := range d.rows {
		r := &d.rows[i]
		if r.decision != nil && r.decision.BackoffText(d.live, r.Index) != "" {
			texts = append(texts, r.decision.BackoffText(d.live, r.Index))
		}
	}
	return listed(texts, "; ")
}
