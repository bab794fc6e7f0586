package survey

import (
	"time"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// stuckFor is the least age of objects that the status calls stuck.
const stuckFor = time.Minute

// recall adds what the operator has written into the status: that objects of the previous incarnation
// are stuck.
func recall(v lws.Vigil, set *lwsv1.LeaderWorkerSet, now time.Time) lws.Vigil {
	if !lws.ToldStuck(set) {
		return v
	}
	for uid := range v.Seen {
		v.Seen[uid] = now.Add(-stuckFor)
	}
	v.Moved = time.Time{}
	return v
}
