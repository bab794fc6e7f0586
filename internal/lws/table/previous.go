package table

import (
	"cmp"
	"slices"
	"time"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// awaitNames returns what holds back the set: the leader StatefulSet, and leaders, because the StatefulSet controller
// cannot skip an ordinal. Once none has moved for a while, leaders do if they have all names.
func awaitNames(t *Table) namesWait {
	w := namesWait{
		whole:   append(lws.ObjectsOf(identity.KindStatefulSet, t.StatefulSet.Previous), lws.ObjectsOf(identity.KindDeployment, t.Deployment.Previous)...),
		leaders: append(t.PreviousLeaders(), t.PreviousPVCs()...),
	}
	w.holds = len(w.whole) > 0
	if len(w.leaders) == 0 || t.StatefulSet.Own() != nil {
		return w
	}
	goOn := t.Vigil.Moved.Add(lws.GoOnAfter)
	if t.Now.Before(goOn) {
		w.until = goOn
	}
	w.holds = w.holds || t.Now.Before(goOn) || len(lws.OrdinalsOf(w.leaders)) >= int(workload.Replicas(t.Set))
	return w
}

// awaitPrevious returns what is said about objects of a previous incarnation. Beside those that hold back the set, each holds
// back its own group.
func awaitPrevious(t *Table) lws.PreviousWait {
	blocking := slices.Concat(t.wait.whole, t.wait.leaders)
	if t.WantsShared() { // pods have no DNS names until the Service is there
		blocking = append(blocking, lws.ObjectsOf(identity.KindService, t.Service.Previous)...)
	}
	for _, r := range t.All() {
		if r.Leader != nil && !t.WantsShared() {
			blocking = append(blocking, lws.ObjectsOf(identity.KindService, r.Service.Previous)...)
		}
		if r.IsStopped || !r.isWanted && r.Leader == nil { // its pods stay, and a condition says so, or no other group needs its names
			continue
		}
		blocking = append(blocking, lws.ObjectsOf(identity.KindPodGroup, r.Gang.Previous)...)
		blocking = append(blocking, r.Previous(workload.Size(t.Set))...)
	}
	waiting := t.Report(slices.Clone(blocking))
	if len(blocking) > 0 {
		waiting.Until = cmp.Or(t.wait.until, t.Now.Add(lws.ConflictLook))
	}
	if len(blocking) > 0 && waiting.Message == "" {
		waiting.Quiet = new(lws.GoneWait(t.Set, "", blocking, time.Time{}))
	}
	return waiting
}

// PreviousLeaders returns the objects under names of leaders that the set needs, but for the
// leaders that its own StatefulSet replaces.
func (t *Table) PreviousLeaders() []lws.Object {
	return t.Maker.Needed(lws.ObjectsOf(identity.KindPod, lws.NotOf(t.LeaderStatefulSet(), t.Leaders.Previous)))
}

// PreviousPVCs returns the terminating PVCs of leaders that the set needs: no pod starts with one.
func (t *Table) PreviousPVCs() []lws.Object {
	return lws.Below(lws.ObjectsOf(identity.KindPersistentVolumeClaim, t.LeaderVolumes.Previous), 0, workload.Replicas(t.Set))
}
