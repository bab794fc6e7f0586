package lws

import (
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
)

// setDecision is a plan in the making and what the rules found on the way.
type setDecision struct {
	*SetSnapshot
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

// DecideSet is the whole behaviour of a set as such, in order of precedence.
// What happens inside a group is DecideGroup's.
func DecideSet(w SetSnapshot) Plan {
	d := &setDecision{SetSnapshot: &w, live: w.Set, told: &w.Set.Status}
	if w.Set.DeletionTimestamp != nil {
		return Plan{} // nothing is owed to a set on its way out: garbage collection does the rest
	}
	d.restarted = d.restartStatus()
	rules := []func(*setDecision){
		(*setDecision).keptClaims,
		(*setDecision).paused,
		(*setDecision).refused,
		(*setDecision).hindered,
		(*setDecision).conflicts,
		(*setDecision).ghosts,
		(*setDecision).revisions,
		(*setDecision).rolling,
		(*setDecision).pvcs,
		(*setDecision).leaders,
		(*setDecision).replace,
		(*setDecision).tellPause,
		(*setDecision).service,
		(*setDecision).gangs,
		(*setDecision).unreachable,
		(*setDecision).nudge,
		(*setDecision).history,
		(*setDecision).status,
		(*setDecision).scaledPVCs,
	}
	for _, rule := range rules {
		rule(d)
	}
	return d.plan
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

// settled tells whether nothing is left to write before the status.
func (d *setDecision) settled() bool {
	return len(d.plan.Actions) == 0
}

func because(code, sentence string) action.Reason {
	return action.Reason{Code: code, Sentence: sentence}
}
