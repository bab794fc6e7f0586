package table

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
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
		waiting.Quiet = new(lws.GoneWait(t.Set, "", blocking, waiting.Until))
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

// conflicts names the foreign objects under names that the set needs. They are never written. One
// under the name of the leader StatefulSet holds back everything, any other its own part.
func conflicts(t *Table) string {
	found := slices.Concat(
		lws.ObjectsOf(identity.KindStatefulSet, t.StatefulSet.Foreign),
		lws.ObjectsOf(identity.KindDeployment, t.Deployment.Foreign),
		lws.ObjectsOf(identity.KindPod, t.Misspelt),
		t.Maker.Needed(lws.ObjectsOf(identity.KindPod, t.Leaders.Foreign)), t.Maker.LeftBehind(),
		lws.ObjectsOf(identity.KindWorkload, t.Workload.Foreign),
		lws.ObjectsOf(identity.KindPodGroup, t.PodGroup.Foreign),
	)
	if t.WantsShared() {
		found = append(found, lws.ObjectsOf(identity.KindService, t.Service.Foreign)...)
	}
	for _, r := range t.Rows {
		found = append(found, r.Conflicts(t.Set)...)
	}
	return lws.ConflictMessage(found)
}

// WantsShared reports whether pods of the set hang from the Shared Service.
func (t *Table) WantsShared() bool { return workload.Subdomain(t.Set) == lwsv1.SubdomainShared }

// unresolvedLeaders returns why workers cannot resolve the name of their leader, and what to do, or nothing. A group
// of one has no worker, so it needs no Service.
func unresolvedLeaders(t *Table) action.Reason {
	for i := range t.Rows {
		g, found := &t.Rows[i], t.Service
		if g.Size < 2 {
			continue
		}
		if g.HasOwnSubdomain(t.Set) {
			found = g.Service
		}
		own := cmp.Or(found.Own(), found.Orphan())
		refused := func(r action.Refused) bool { return r.Index == identity.NoOrdinal || r.Index == g.Index }
		switch {
		case own != nil && lws.NotHeadless(own) != "":
			return lws.Because(lws.CodeNotHeadless, lws.NotHeadless(own))
		case len(found.Foreign) > 0 && !t.publishes(found.Foreign[0], g.Leader):
			return lws.Because(lws.CodeNameConflict, "workers cannot resolve their leaders: "+lws.ConflictMessage(lws.ObjectsOf(identity.KindService, found.Foreign)))
		case found.Empty() && slices.ContainsFunc(t.Refused, refused):
			return lws.Because(lws.CodeRefused, t.Hindrance)
		}
	}
	return action.Reason{}
}

// publishes reports whether a Service of another owner makes the name of a leader known. Memory keeps no labels of users
// on pods: the template has them.
func (t *Table) publishes(service *corev1.Service, leader *corev1.Pod) bool {
	return service.Spec.ClusterIP == corev1.ClusterIPNone && len(service.Spec.Selector) > 0 &&
		labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Merge(workload.WrittenForLeaders(t.Set).Labels, leader.Labels))
}
