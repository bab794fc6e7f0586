package survey

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// stuckFor is how long a ghost that the status calls stuck has been there at
// least.
const stuckFor = time.Minute

// recall fills in the vigil of the operator from the objects: a ghost was seen when it was deleted, and
// ghosts are stuck if the status says so.
func recall(v lws.Vigil, set *lwsv1.LeaderWorkerSet, ghosts []metav1.Object, now time.Time) lws.Vigil {
	stuck := lws.ToldStuck(set)
	v.Seen = make(map[types.UID]time.Time, len(ghosts))
	for _, ghost := range ghosts {
		seen := now
		if at := DeletedAt(ghost); !at.IsZero() && at.Before(seen) {
			seen = at
		}
		if longAgo := now.Add(-stuckFor); stuck && longAgo.Before(seen) {
			seen = longAgo
		}
		v.Seen[ghost.GetUID()] = seen
	}
	if stuck {
		v.Moved = time.Time{}
	}
	return v
}

// DeletedAt is when an object was deleted, or zero. A deletion timestamp is the
// moment at which the grace period ends.
func DeletedAt(object metav1.Object) time.Time {
	ends := object.GetDeletionTimestamp()
	if ends == nil {
		return time.Time{}
	}
	if grace := object.GetDeletionGracePeriodSeconds(); grace != nil {
		return ends.Add(-time.Duration(*grace) * time.Second)
	}
	return ends.Time
}

func ghostsOfSet(w lws.SetSnapshot) []metav1.Object {
	ghosts := slices.Concat(objects(w.StatefulSet.Ghosts), objects(w.Leaders.Ghosts), objects(w.Service.Ghosts), objects(w.Revisions.Ghosts),
		objects(w.LeaderVolumes.Ghosts))
	for _, groups := range [][]lws.Group{w.Groups, w.Vacant} {
		for _, g := range groups {
			ghosts = append(ghosts, ghostsOfGroup(g)...)
		}
	}
	return ghosts
}

func ghostsOfGroup(g lws.Group) []metav1.Object {
	return slices.Concat(objects(g.Workers.Ghosts), objects(g.Pods.Ghosts), objects(g.Service.Ghosts), objects(g.Gang.Ghosts), objects(g.Volumes.Ghosts))
}

func objects[T metav1.Object](all []T) []metav1.Object {
	var plain []metav1.Object
	for _, object := range all {
		plain = append(plain, object)
	}
	return plain
}
