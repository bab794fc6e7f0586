package lws

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// The number of a revision is what users go back to it by. Two operators that take
// themselves for the only one may give one number to two templates, since neither
// sees what the other makes: their names differ, and no write of one is refused for
// the other's. Whoever sees both gives one of them another number, and the current
// revision stays the last.

// tellApart renumbers one of two revisions of one number.
func (d *setDecision) tellApart(current *appsv1.ControllerRevision) {
	shared := d.sharedNumbers()
	twin := latest(d.Revisions.Members, func(r *appsv1.ControllerRevision) bool { return shared[r.Revision] && Genuine(r, d.Set.Name) })
	if twin == nil || !slices.Contains(d.Revisions.Members, current) { // or else it is being adopted
		return
	}
	highest := d.highestNumber()
	if shared[current.Revision] {
		twin = current
	}
	d.renumber(twin, highest+1, fmt.Sprintf("number %d is that of another revision, too", twin.Revision))
	if twin.Labels[lwsv1.RevisionKey] != d.key {
		d.renumber(current, highest+2, "the current revision is the last")
	}
}

// sharedNumbers are those that revisions of several templates have.
func (d *setDecision) sharedNumbers() map[int64]bool {
	keys, shared := map[int64]string{}, map[int64]bool{}
	for _, r := range d.counting() {
		key := r.Labels[lwsv1.RevisionKey]
		if other, taken := keys[r.Revision]; taken && other != key {
			shared[r.Revision] = true
		}
		keys[r.Revision] = key
	}
	return shared
}

func (d *setDecision) renumber(revision *appsv1.ControllerRevision, number int64, why string) {
	d.plan.do(action.Apply{
		Object:     &appsv1.ControllerRevision{Revision: number},
		Onto:       identity.RefOf(identity.KindControllerRevision, revision),
		FieldOwner: numberFieldOwner,
		Because:    because(CodeChanged, why),
	})
}
