package lws

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/lws/rollout"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// replacements are the gated leaders of a set whose groups have keys.
type replacements struct {
	// room is what the set has, and admitted are the leaders that there is room for.
	room               rollout.Room
	admitted, deferred []*corev1.Pod
}

// replacements returns which gated leaders may be scheduled. One of another revision waits until the Deployment
// controller has seen the present one: it may be about to delete that leader.
func (d *deploymentMaker) replacements() (r replacements) {
	if d.Deployment.Own() == nil {
		return r
	}
	byName := map[string]*corev1.Pod{}
	var gated []rollout.Gated
	holding := map[int]bool{}
	for _, leader := range d.Leaders.Owned {
		isCurrent := leader.Labels[lwsv1.RevisionKey] == d.target.key
		switch {
		case workload.HasEnded(leader), IsExhausted(leader):
			holding[workload.IndexOf(leader)] = true
		case !workload.IsGated(leader):
			r.room.Active++
		case isCurrent || Paused(d.Set) || d.isObserved():
			byName[leader.Name] = leader
			gated = append(gated, rollout.Gated{Name: leader.Name, Created: leader.CreationTimestamp.Time, Current: isCurrent})
		}
	}
	for _, leader := range d.leadersAndLeaving() {
		if leader.DeletionTimestamp != nil && !workload.IsGated(leader) { // a gated one has no node
			holding[workload.IndexOf(leader)] = true
		}
	}
	for i := range d.Vacant {
		holding[d.Vacant[i].Index] = true
	}
	r.room.Holding, r.room.Stopped = int32(len(holding)), int32(len(d.exhaustedBy))
	r.room.Immediate = d.Set.Spec.GroupReplacementPolicy == lwsv1.ImmediateGroupReplacement
	if r.room.Allowed = workload.Replicas(d.Set); d.rolls() {
		r.room.Allowed += workload.Surge(d.Set)
	}
	admitted, deferred := r.room.Admit(gated)
	for _, g := range admitted {
		r.admitted = append(r.admitted, byName[g.Name])
	}
	for _, g := range deferred {
		r.deferred = append(r.deferred, byName[g.Name])
	}
	return r
}

// admit implements maker: it lets the gated leaders be scheduled that there is room for.
func (d *deploymentMaker) admit() (p Plan) {
	p.add(d.collisions())
	p.add(d.letGo())
	for _, leader := range d.gated.admitted {
		ref := identity.RefOf(identity.KindPod, leader)
		write := action.Ungate{
			Pod:     ref,
			Gate:    lwsv1.GroupReplacementGate,
			Relies:  d.stillDeferred(),
			Because: because(CodeAdmitted, fmt.Sprintf("the set has room for leader %s", leader.Name)),
			Tell: action.Telling{Done: []action.Event{{
				Reason: "GroupReplacementAdmitted", Action: "Update", Related: &ref, Note: fmt.Sprintf("Leader pod %s admitted for scheduling", leader.Name),
			}}},
		}
		if leader.Annotations[corev1.PodDeletionCost] == admission.GatedDeletionCost {
			write.Annotations = map[string]string{corev1.PodDeletionCost: ""}
		}
		p.do(write)
	}
	for _, leader := range d.gated.deferred {
		p.wait(d.deferral(leader))
	}
	return p
}

// stillDeferred is that the leaders that wait are as they were judged: the cache may not show yet that one of them was
// admitted, and two of one second would take one place.
func (d *deploymentMaker) stillDeferred() []action.Standing {
	if len(d.gated.deferred) == 0 {
		return nil
	}
	relied := action.Standing{Kind: identity.KindPod, Namespace: d.Set.Namespace, Labels: workload.LeaderSelector(d.Set.Name)}
	for _, leader := range d.gated.deferred {
		relied.Unchanged = append(relied.Unchanged, identity.RefOf(identity.KindPod, leader))
	}
	return []action.Standing{relied}
}

// deferral says what a leader waits for. The sentence is the same as long as the cause is: there is one event for it.
func (d *deploymentMaker) deferral(leader *corev1.Pod) Wait {
	w := Wait{Reason: because(CodeDeferred, fmt.Sprintf("leader %s is scheduled once the set has room for one more group", leader.Name)), Until: d.Now.Add(conflictLook)}
	if n := d.gated.room.Holding; n > 0 {
		ref := identity.RefOf(identity.KindPod, leader)
		w.Tell = &action.Event{
			Reason: "GroupReplacementDeferred", Action: "Update", Related: &ref,
			Note: fmt.Sprintf("Leader pod %s waits for %d terminating group(s) to be removed before scheduling", leader.Name, n),
		}
	}
	return w
}

// collisions replaces the younger of two leaders whose keys begin alike: their groups would have one name.
func (d *deploymentMaker) collisions() (p Plan) {
	oldest := map[int]*corev1.Pod{}
	for _, leader := range slices.SortedFunc(slices.Values(d.Leaders.Owned), byAge) {
		first := oldest[workload.IndexOf(leader)]
		if first == nil {
			oldest[workload.IndexOf(leader)] = leader
			continue
		}
		p.do(action.Delete{
			Object:  identity.RefOf(identity.KindPod, leader),
			Because: because(CodeKeyTaken, fmt.Sprintf("the keys of leaders %s and %s begin alike, and name one group", first.Name, leader.Name)),
		})
	}
	return p
}

// letGo ends the retention of groups that were stopped and have no place any more: groups that run take all of them,
// since the set was scaled down, or rolled at one revision. The youngest go.
func (d *deploymentMaker) letGo() (p Plan) {
	if d.Deployment.Own() == nil {
		return p
	}
	stopped := slices.SortedFunc(maps.Values(d.exhaustedBy), byAge)
	for _, leader := range stopped[len(stopped)-d.gated.room.Surplus():] {
		kept := Kept(d.Set.Name, []*corev1.Pod{leader})
		for i := range d.Vacant {
			if g := &d.Vacant[i]; g.LeaderName == leader.Name {
				kept = append(kept, Kept(d.Set.Name, g.Pods.Owned, g.Pods.Orphans, g.Pods.Previous)...)
			}
		}
		p.add(Release(kept, leader.Name, "the set has no place for it any more", specified(identity.KindDeployment, d.Deployment.Own())))
	}
	return p
}

func byAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
