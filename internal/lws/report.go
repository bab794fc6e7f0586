package lws

import (
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Standing is how far a set has come, counted as its status counts.
type Standing struct {
	// Key is the revision key that groups should be at, or empty while unknown.
	Key string
	// Ready and Updated include groups above replicas.
	Ready, Updated int32
	// Pending is set while the spec asks for a template that is not taken in: the
	// rollout is paused, or the template wants claims that the set does not have. Key
	// is then that of the one before.
	Pending bool
	// Target is how many wanted groups are to be at the revision: those from the
	// user's partition on. TargetUpdated and TargetReady of them are there, and
	// there and ready.
	Target, TargetUpdated, TargetReady int32
	// Surge is how many groups above those wanted are to go, once the rollout is
	// done. Where the user's partition keeps others back, surge groups stay.
	Surge int32
}

// Stand returns how far a set has come.
func Stand(w SetSnapshot) Standing {
	d, _ := derive(w)
	counts := d.count()
	return Standing{
		Key: d.target.key, Ready: counts.ready, Updated: counts.updated, Pending: d.pending,
		Target: max(0, workload.Replicas(d.Set)-workload.Partition(d.Set)), TargetUpdated: counts.currentUpdated, TargetReady: counts.currentUpdatedReady,
		Surge: d.surplus(),
	}
}

// surplus is how many groups there are beyond those that the leader StatefulSet
// is to have.
func (d *setDecision) surplus() int32 {
	var surplus int32
	for i := range d.Groups {
		surplus += one(int32(d.Groups[i].Index) >= d.course.replicas)
	}
	return surplus
}

// Agrees tells whether a revision's data says of groups what the set's spec says.
// Their claims are left out: no rollout changes these, whatever either says.
func Agrees(set *lwsv1.LeaderWorkerSet, data []byte) bool {
	revision, err := Restore(set, data)
	if err != nil {
		return false
	}
	live, err := RevisionData(volumes.WithTemplates(set, volumes.Templates(revision)))
	return err == nil && sameRevision(set, data, live)
}

// UpToDate tells whether all parts of the group are at the revision key.
func (g *Group) UpToDate(key string) bool {
	return g.Leader != nil && g.updated(key)
}

// PodReady tells whether a pod runs and is ready.
func PodReady(pod *corev1.Pod) bool { return podReady(pod) }
