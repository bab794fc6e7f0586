package lws

import (
	"fmt"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// history takes away revisions that no group runs and none will run: those at
// another key, once every group is updated and ready.
func (d *setDecision) history() {
	if d.held || !d.settled() || strategyPartition(d.Set) != 0 || !d.updateDone() {
		return
	}
	for _, revision := range d.Revisions.Members {
		if key := revision.Labels[lwsv1.RevisionKey]; key != d.key {
			d.plan.do(action.Delete{
				Object:  identity.RefOf(identity.KindControllerRevision, revision),
				Because: because(CodeSuperseded, fmt.Sprintf("every group runs revision %s, none runs %s", d.key, key)),
			})
		}
	}
}

func (d *setDecision) updateDone() bool {
	counts := d.count()
	return counts.updatedAndReady == Replicas(d.Set) && counts.seen == Replicas(d.Set)
}
