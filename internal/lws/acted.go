package lws

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// That a spec was acted upon is told by the status, and believed where nothing else
// tells: a revision that is lost is made again from a spec that was. Told too early, an
// edit would be taken for what the groups run, and never reach them. So it is told once
// the leaders have been given what the spec says, and until then what was told before is
// taken back.

// actedUpon tells whether the status says that the spec as it is was acted upon: it
// was seen, and no template of it was told to wait.
func (d *setDecision) actedUpon() bool {
	return d.Set.Status.ObservedGeneration == d.Set.Generation && !toldToWait(d.Set.Status.Conditions)
}

// toldToWait tells whether conditions say that a template waits for its user.
func toldToWait(conditions []metav1.Condition) bool {
	updating, _ := conditionOf(conditions, string(lwsv1.LeaderWorkerSetUpdateInProgress))
	return updating.Status == metav1.ConditionTrue && updating.Reason == CodePaused
}

// generationSeenTo is the generation that a status of such conditions is to speak of.
func (d *setDecision) generationSeenTo(conditions []metav1.Condition) int64 {
	if d.given(conditions) || d.actedUpon() {
		return d.Set.Generation
	}
	return max(0, min(d.told.ObservedGeneration, d.Set.Generation-1))
}

// given tells whether leaders have what the spec says of them once the status is written,
// or are told to wait for it. A status with a new restart is written before all else.
func (d *setDecision) given(conditions []metav1.Condition) bool {
	key := d.statefulSetKey()
	switch {
	case d.refusal != "":
		return false
	case key == "":
		return true // whatever comes is made of the spec
	case d.revisionWithKey(key) == nil, d.held:
		return false // until it is there, what they have is not known; nor are they given anything
	case d.pending:
		return !Paused(d.Set) || toldToWait(conditions)
	case d.writesLeaders():
		return !d.restarted.isNew
	}
	return d.key == key
}

// writesLeaders tells whether the plan makes or changes the leader StatefulSet.
func (d *setDecision) writesLeaders() bool {
	for _, a := range d.plan.Actions {
		_, tidies := a.(action.Relabel)
		if ref := a.Target(); ref.Kind == identity.KindStatefulSet && ref.Name == d.Set.Name && !tidies {
			return true
		}
	}
	return false
}
