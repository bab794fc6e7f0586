package leaders

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// replacements returns which gated leaders may be scheduled: those of the current revision first, and then the oldest.
// One of another revision waits until the Deployment controller has seen the present one: it may be about to delete
// that leader.
func (m *deploymentMaker) replacements() (r replacements) {
	if m.Deployment.Own() == nil {
		return r
	}
	isCurrent := func(leader *corev1.Pod) bool { return leader.Labels[lwsv1.RevisionKey] == m.Target.Key }
	var gated []*corev1.Pod
	holding := map[int]bool{}
	for _, leader := range m.Leaders.Owned {
		switch {
		case workload.HasEnded(leader), lws.IsExhausted(leader):
			holding[workload.IndexOf(leader)] = true
		case !workload.IsGated(leader):
			r.room.Active++
		case isCurrent(leader) || lws.Paused(m.Set) || m.isObserved():
			gated = append(gated, leader)
		}
	}
	for _, leader := range m.LeadersAndLeaving() {
		if leader.DeletionTimestamp != nil && !workload.IsGated(leader) { // a gated one has no node
			holding[workload.IndexOf(leader)] = true
		}
	}
	for i := range m.Vacant {
		holding[m.Vacant[i].Index] = true
	}
	r.room.Holding, r.room.Stopped = int32(len(holding)), int32(len(m.ExhaustedBy))
	r.room.Immediate = m.Set.Spec.GroupReplacementPolicy == lwsv1.ImmediateGroupReplacement
	if r.room.Allowed = workload.Replicas(m.Set); m.rolls() {
		r.room.Allowed += workload.Surge(m.Set)
	}
	slices.SortFunc(gated, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(lws.One(isCurrent(b)), lws.One(isCurrent(a))), byAge(a, b))
	})
	admitted := r.room.Admit(len(gated))
	r.admitted, r.deferred = gated[:admitted], gated[admitted:]
	return r
}

// Admit implements maker: it lets the gated leaders be scheduled that there is room for.
func (m *deploymentMaker) Admit() (p lws.Plan) {
	p.Add(m.collisions())
	if m.gated.room.Surplus() > 0 {
		p.Add(m.letGo())
	}
	deferred := unchangedLeaders(m.Table)
	for _, leader := range m.gated.deferred {
		deferred.Unchanged = append(deferred.Unchanged, identity.RefOf(identity.KindPod, leader))
		p.Wait(m.deferral(leader))
	}
	for _, leader := range m.gated.admitted {
		ref := identity.RefOf(identity.KindPod, leader)
		write := action.Ungate{
			Pod:     ref,
			Gate:    lwsv1.GroupReplacementGate,
			Because: lws.Because(lws.CodeAdmitted, fmt.Sprintf("the set has room for leader %s", leader.Name)),
			Tell: action.Telling{Done: []action.Event{
				lws.Event("GroupReplacementAdmitted", "Update", "Leader pod "+leader.Name+" admitted for scheduling", &ref),
			}},
		}
		if leader.Annotations[corev1.PodDeletionCost] == admission.GatedDeletionCost {
			write.Annotations = map[string]string{corev1.PodDeletionCost: ""}
		}
		if len(deferred.Unchanged) > 0 { // the cache may not show that one was admitted, and two would take one place
			write.Relies = []action.Standing{deferred}
		}
		p.Do(write)
	}
	return p
}

// deferral says what a leader waits for. The sentence is the same as long as the cause is: there is one event for it.
func (m *deploymentMaker) deferral(leader *corev1.Pod) lws.Wait {
	w := lws.Wait{Reason: lws.Because(lws.CodeDeferred, fmt.Sprintf("leader %s is scheduled once the set has room for one more group", leader.Name)), Until: m.Now.Add(lws.ConflictLook)}
	if n := m.gated.room.Holding; n > 0 {
		note := fmt.Sprintf("Leader pod %s waits for %d terminating group(s) to be removed before scheduling", leader.Name, n)
		w.Tell = new(lws.Event("GroupReplacementDeferred", "Update", note, new(identity.RefOf(identity.KindPod, leader))))
	}
	return w
}

// collisions replaces the younger of two leaders whose keys begin alike: their groups would have one name.
func (m *deploymentMaker) collisions() (p lws.Plan) {
	oldest := map[int]*corev1.Pod{}
	for _, leader := range slices.SortedFunc(slices.Values(m.Leaders.Owned), byAge) {
		first := oldest[workload.IndexOf(leader)]
		if first == nil {
			oldest[workload.IndexOf(leader)] = leader
			continue
		}
		p.Do(action.Delete{
			Object:  identity.RefOf(identity.KindPod, leader),
			Because: lws.Because(lws.CodeKeyTaken, fmt.Sprintf("the keys of leaders %s and %s begin alike, and name one group", first.Name, leader.Name)),
		})
	}
	return p
}

// letGo ends the retention of groups that were stopped and have no place any more: groups that run take all of them,
// since the set was scaled down, or rolled at one revision. The youngest go.
func (m *deploymentMaker) letGo() (p lws.Plan) {
	stopped := slices.SortedFunc(maps.Values(m.ExhaustedBy), byAge)
	for _, leader := range stopped[len(stopped)-m.gated.room.Surplus():] {
		kept := lws.Kept(m.Set.Name, []*corev1.Pod{leader})
		for i := range m.Vacant {
			if g := &m.Vacant[i]; g.LeaderName == leader.Name {
				kept = append(kept, lws.Kept(m.Set.Name, g.Pods.Owned, g.Pods.Orphans, g.Pods.Previous)...)
			}
		}
		p.Add(lws.Release(kept, leader.Name, "the set has no place for it any more", lws.Specified(identity.KindDeployment, m.Deployment.Own())))
	}
	return p
}

func byAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// Settle implements maker: it moves entries of groups that are gone to the groups that replace them: a new key does not end a back-off, nor
// renew a budget. Entries that no group can inherit are dropped.
func (m *deploymentMaker) Settle(s *restart.Status) {
	m.gated = m.replacements()
	if m.Deployment.Own() == nil {
		return
	}
	owners := restart.Owners{Living: map[int]bool{}, Kept: map[int]bool{}, Vacant: int(m.gated.room.Allowed) - len(m.gated.admitted)}
	for _, leader := range m.Leaders.Owned {
		owners.Living[workload.IndexOf(leader)] = true
		if !workload.IsGated(leader) {
			owners.Vacant--
		}
	}
	for index := range m.ExhaustedBy {
		owners.Kept[index] = true
	}
	for _, leader := range m.gated.admitted {
		owners.Heirs = append(owners.Heirs, restart.Heir{Index: workload.IndexOf(leader), Revision: leader.Labels[lwsv1.RevisionKey]})
	}
	s.Inherit(owners)
}
