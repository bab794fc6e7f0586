package lws

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// setDecision is what the rules of a set read: the snapshot, and values derived from it.
// No rule changes them.
type setDecision struct {
	*SetSnapshot
	// plan is what the values themselves need first, such as a revision to create.
	plan Plan
	// live is the set as it is, with the claims that it was made with; while a rollout
	// is held, Set is not.
	live *lwsv1.LeaderWorkerSet

	// told is the status as it is written.
	told *lwsv1.LeaderWorkerSetStatus
	// restarted is what the status is to tell about restarts.
	restarted restartStatus

	// held is set when nothing new may be made under the set's names yet.
	held bool
	// key is the revision key that groups should be at, or empty while unknown.
	key string
	// data is the revision data of the live spec.
	data []byte
	// waiting is what is told about ghosts, or the zero value.
	waiting haunting
	// pending is set while the spec asks for a template that is not taken in: the
	// rollout is paused, or the template wants claims that the set does not have.
	pending bool
	// conflict names what squats on names the set needs, or is empty.
	conflict string
	// refusal says why the spec is left alone, or is empty.
	refusal string
	// otherClaims says that the spec's claims are not those of the set, or is empty.
	otherClaims string
	// hindrance says what is refused that costs a part of the set only, or is empty.
	hindrance string
	// rollout is where a rolling update stands, and course where it goes next.
	rollout rollout
	course  course
	// pvcsPending is set while PVCs would go with what owns them: no leader is replaced then.
	pvcsPending bool
}

// DecideSet is the whole behaviour of a set itself. DecideGroup decides inside a group.
func DecideSet(w SetSnapshot) Plan {
	if w.Set.DeletionTimestamp != nil {
		return Plan{} // the garbage collector deletes what is left
	}
	d := derive(w)
	plan := d.plan
	if plan.Needs != "" {
		return Plan{Needs: plan.Needs}
	}
	for _, rule := range []func(*setDecision) Plan{
		(*setDecision).refusals,
		(*setDecision).nameConflicts,
		(*setDecision).previous,
		(*setDecision).leaders,
		(*setDecision).tellPause,
		(*setDecision).service,
		(*setDecision).gangs,
	} {
		plan.add(rule(d))
	}
	// These correct what the StatefulSet controller does, once it has what it needs.
	for _, rule := range []func(*setDecision) Plan{
		(*setDecision).replace,
		(*setDecision).unreachable,
		(*setDecision).nudge,
		(*setDecision).history,
	} {
		if plan.settled() {
			plan.add(rule(d))
		}
	}
	if plan.Needs != "" {
		return Plan{Needs: plan.Needs}
	}
	scaled := !plan.writesLeaders(d.Set)
	status := d.status()
	if d.restarted.isNew { // the evidence goes with the leader: the status is written first
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

// derive returns the values that the rules read, each from the snapshot and those before it.
func derive(w SetSnapshot) *setDecision {
	d := &setDecision{SetSnapshot: &w, live: w.Set, told: &w.Set.Status}
	d.restarted = d.restartStatus()
	if key := d.statefulSetKey(); key != "" && !d.HistoryRead && d.revisionWithKey(key) == nil {
		d.plan.Needs = NeedHistory
	}
	kept := d.keepClaims()
	d.Set, d.live, d.otherClaims = kept.set, kept.live, kept.differ
	if kept.differ != "" {
		d.plan.wait(Wait{Reason: because(CodeVolumeClaimsDiffer, kept.differ)})
	}
	paused := d.pause()
	d.Set, d.pending, d.held = paused.set, kept.pending || paused.pending, paused.unknown != ""
	if d.held {
		d.plan.wait(Wait{Reason: because(CodeRevisionNotVisible, paused.unknown)})
	}
	d.refusal, d.hindrance = w.refusedSpec(), w.refusedParts()
	d.conflict, d.waiting = d.conflicts(), d.ghosts()
	d.held = d.held || d.refusal != "" || d.waiting.holds || len(d.StatefulSet.Squatters) > 0
	d.revisions()
	d.rollout, d.course = d.rolling()
	owners, pending := d.pvcs()
	d.plan.add(owners)
	d.pvcsPending = pending
	return d
}

// statefulSetUID is the UID of the leader StatefulSet that is, or is about to
// be, the set's own. Empty when there is none.
func (w *SetSnapshot) statefulSetUID() types.UID {
	if sts := w.StatefulSet.Member(); sts != nil {
		return sts.UID
	}
	if sts := w.StatefulSet.Orphan(); sts != nil {
		return sts.UID
	}
	return ""
}

// settled reports whether nothing is left to write before the status.
func (p *Plan) settled() bool {
	return len(p.Actions) == 0
}

// writesLeaders reports whether the plan creates or changes the leader StatefulSet.
func (p *Plan) writesLeaders(set *lwsv1.LeaderWorkerSet) bool {
	return slices.ContainsFunc(p.Actions, func(a action.Action) bool {
		ref := a.Target()
		return ref.Kind == identity.KindStatefulSet && ref.Name == set.Name
	})
}

func because(code, sentence string) action.Reason {
	return action.Reason{Code: code, Sentence: sentence}
}

// setRef returns the incarnation of the set.
func setRef(set *lwsv1.LeaderWorkerSet) identity.Ref {
	return identity.RefOf(identity.KindLeaderWorkerSet, set)
}
