package lws

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/rollout"
)

// setDecision is what the rules of a set read: the snapshot, and values derived from it in the
// order below. Only derive sets them.
type setDecision struct {
	*SetSnapshot
	effectiveSpec
	// Standing counts the rows.
	Standing
	// maker makes the leaders.
	maker maker
	// Set is the effective set, in place of that of the snapshot.
	Set *lwsv1.LeaderWorkerSet

	// exhaustedBy has the leaders of groups that exhausted maxGroupRestarts, by index.
	exhaustedBy map[int]*corev1.Pod
	// refusal says why the spec is left alone, or is empty.
	refusal string
	// hindrance says what is refused that costs a part of the set only, or is empty.
	hindrance string
	// wait is for the leaders of a previous incarnation. held is set when nothing new may be created under the set's names yet.
	wait namesWait
	held bool
	// target is the revision that groups should be at.
	target target
	// isDisplaced is set if the leaders' template has another placement than the set.
	isDisplaced bool
	// rows are the groups that have leaders, vacant others of which something is known, and unknown stands for the rest.
	rows, vacant []row
	unknown      row
	// restarted is what the status is to say about restarts.
	restarted restart.Status
	// waiting is what is said about objects of a previous incarnation, or the zero value.
	waiting previousWait
	// conflict names the foreign objects under names that the set needs, or is empty.
	conflict string
	// unresolved says why workers cannot resolve their leaders, or is empty.
	unresolved action.Reason
	// delay is what groups wait for that the operator cannot do.
	delay delay
	// rollout is where a rolling update stands, and course where it goes next.
	rollout rollout.State
	course  rollout.Course
	// pvcsPending is set while PVCs would go with what owns them: no leader is replaced then.
	pvcsPending bool
}

// effectiveSpec is the set that the rules judge by, in place of the one in the snapshot.
type effectiveSpec struct {
	// set has the volumeClaimTemplates of the leader StatefulSet and, while the rollout is paused,
	// the template and network of its leaders. live has the template of the spec.
	set, live *lwsv1.LeaderWorkerSet
	// pending is set while the spec asks for a template that is not taken in.
	pending bool
	// otherClaims says that the volumeClaimTemplates of the spec are not those of the set, or is empty.
	otherClaims string
}

// DecideSet is the whole behaviour of a set itself. DecideGroup decides inside a group.
func DecideSet(w SetSnapshot) Plan {
	if w.Set.DeletionTimestamp != nil {
		return Plan{} // the garbage collector deletes what is left
	}
	if len(w.Beyond) > 0 {
		return w.leftAlone()
	}
	d, plan := derive(w)
	if plan.Needs != "" {
		return Plan{Needs: plan.Needs}
	}
	for _, rule := range []func(*setDecision) Plan{
		(*setDecision).tell,
		(*setDecision).previous,
		(*setDecision).workloadObjects,
		(*setDecision).leaders,
		(*setDecision).service,
		func(d *setDecision) Plan { return d.maker.admit() },
	} {
		plan.add(rule(d))
	}
	// These correct what other controllers do, once they have what they need.
	for _, rule := range []func(*setDecision) Plan{
		func(d *setDecision) Plan { return d.maker.repair() },
		(*setDecision).history,
	} {
		if len(plan.Actions) == 0 {
			plan.add(rule(d))
		}
	}
	plan.add(d.unusedPodGroups())
	if plan.Needs != "" {
		return Plan{Needs: plan.Needs}
	}
	scaled := !plan.writesLeaders(d.Set)
	status := d.status()
	if d.restarted.IsNew { // the evidence goes with the leader: the status is written first
		status.add(plan)
		plan = status
	} else {
		plan.add(status)
	}
	if scaled {
		plan.add(d.scaledPVCs())
	}
	return plan
}

// derive returns the values that the rules read, and the plan that they need first, such as a revision to create.
func derive(w SetSnapshot) (*setDecision, Plan) {
	var plan Plan
	d := &setDecision{SetSnapshot: &w, Set: w.Set}
	if key := d.leadersKey(); key != "" && !d.HistoryRead && d.revisionWithKey(key) == nil {
		plan.Needs = NeedHistory
	}
	d.effectiveSpec = d.effective()
	d.Set, d.maker = d.set, newMaker(d)
	d.exhaustedBy = d.exhaustedLeaders()
	d.refusal, d.hindrance = w.refusedSpec(), w.refusedParts()
	d.wait = d.awaitNames()
	d.held = d.refusal != "" || d.wait.holds || len(d.StatefulSet.Foreign)+len(d.Deployment.Foreign) > 0
	d.target = d.newTarget()
	plan.add(d.target.plan)
	d.tabulate()
	d.restarted = d.restartStatus()
	d.waiting = d.awaitPrevious()
	d.conflict = d.conflicts()
	d.rollout, d.course = d.maker.rolling()
	d.Standing = d.count()
	d.expectReplacements()
	d.maker.settle(&d.restarted)
	d.unresolved = d.unresolvedLeaders()
	d.delay = d.delays()
	owners, pending := d.pvcs()
	plan.add(owners)
	d.pvcsPending = pending
	return d, plan
}

// writesLeaders reports whether the plan creates or changes the leader StatefulSet.
func (p *Plan) writesLeaders(set *lwsv1.LeaderWorkerSet) bool {
	return slices.ContainsFunc(p.Actions, func(a action.Action) bool {
		ref := a.Target()
		return ref.Kind == identity.KindStatefulSet && ref.Name == set.Name
	})
}

// setRef returns the incarnation of the set.
func setRef(set *lwsv1.LeaderWorkerSet) identity.Ref {
	return identity.RefOf(identity.KindLeaderWorkerSet, set)
}
