package table

import (
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Roll is what a rollout does to the groups of a set until it ends, if no user changes the set.
type Roll struct {
	// Key and Number are of the revision that groups should be at. Number is 0 while unknown.
	Key    string
	Number int64
	// HasOrdinals is set if groups have names that follow from their indexes.
	HasOrdinals bool
	// Replaced are the groups that the rollout replaces, by rising index.
	Replaced []workload.Identity
	// Kept are groups of another revision that the partition keeps.
	Kept []workload.Identity
	// Down are wanted groups that are not ready and stay: they use the budget.
	Down []workload.Identity
	// Peak is how many groups there are at most, and Rest how many in the end.
	Peak, Rest int32
}

// Roll folds the rows. While the rollout is paused, only groups are replaced that the partition has granted.
func (t *Table) Roll() Roll {
	roll := Roll{Key: t.Target.Key, Number: t.Target.number, Peak: max(workload.Replicas(t.Set), int32(len(t.Rows)))}
	isRolling, isPaused := t.Rollout.Replicas > 0, lws.Paused(t.Set)
	_, isPlace := t.Maker.Places()
	roll.HasOrdinals = isPlace(identity.LeaderName(t.Set.Name, 0))
	for i := range t.Rows {
		r := &t.Rows[i]
		isGranted := !isPaused || isRolling && !t.Rollout.Changed && int32(r.Index) >= t.Rollout.Partition
		switch isOld := r.isOutdated || t.IsDisplaced; {
		case isOld && isGranted && (r.isCurrent || !r.isWanted && int32(r.Index) < t.Course.Replicas): // a surge group
			roll.Replaced = append(roll.Replaced, r.Identity)
		case r.isWanted && !r.IsReady:
			roll.Down = append(roll.Down, r.Identity)
		case isOld && r.isWanted && !r.isCurrent:
			roll.Kept = append(roll.Kept, r.Identity)
		}
	}
	roll.Rest = t.Course.Replicas
	if isRolling && !isPaused {
		roll.Peak, roll.Rest = max(roll.Peak, t.Rollout.Peak()), t.Rollout.Rest(int32(len(roll.Kept)))
	} else if _, surge := workload.Budget(t.Set); !isRolling && len(roll.Replaced) > 0 { // the Deployment controller rolls
		roll.Peak = max(roll.Peak, workload.Replicas(t.Set)+surge)
	}
	return roll
}
