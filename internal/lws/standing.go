package lws

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Standing is the progress of a set, counted as its status counts.
type Standing struct {
	// Key is the revision key that groups should be at, or empty while unknown.
	Key string
	// Ready and Updated include groups above replicas.
	Ready, Updated int32
	// Pending is set while the spec asks for a template that is not taken in: the rollout is
	// paused, or the template mounts PVCs that the set does not have. Key is then the former one.
	Pending bool
	// Target is how many wanted groups are to be at the revision: those from the
	// user's partition on. TargetUpdated and TargetReady of them are there, and
	// there and ready.
	Target, TargetUpdated, TargetReady int32
	// Surge is how many groups above those wanted are to go, once the rollout is
	// done. Where the user's partition keeps others back, surge groups stay.
	Surge int32
	// Down is how many wanted groups are down as the rollout counts, and Budget how many may be.
	Down, Budget int32
	// States counts each wanted group once.
	States [GroupStates]int32
	// Unstarted are the groups with a leader that have not run with all of their pods. It is empty
	// where the restart policy is None: the status does not record then which groups ran.
	Unstarted []UnstartedGroup
	// Accelerators are the extended resources that the pods of one group request. It is nil while
	// all wanted groups are ready.
	Accelerators map[corev1.ResourceName]resource.Quantity
	// Conditions are those of the status as it is to be.
	Conditions []metav1.Condition
}

// UnstartedGroup is a group some of whose pods have never run.
type UnstartedGroup struct {
	Index  int
	Leader types.UID
	// Pods is how many pods the group has.
	Pods int32
}

// GroupState is the state of a wanted group. A group is in the first state that applies.
type GroupState int

// States of a group, in this order.
const (
	// GroupReady is a group all of whose pods are ready.
	GroupReady GroupState = iota
	// GroupExhausted is a group that exhausted maxGroupRestarts and was stopped.
	GroupExhausted
	// GroupRefused is a group that needs a write that the API server refuses.
	GroupRefused
	// GroupBackingOff is a failed group that is recreated later.
	GroupBackingOff
	// GroupRestarting is a failed group that is being recreated, until it starts.
	GroupRestarting
	// GroupWaiting is a group that needs a name that an object of another owner, or of a previous incarnation, has.
	GroupWaiting
	// GroupUnready is a group that started, and now has a pod that is not ready.
	GroupUnready
	// GroupStarting is any other group.
	GroupStarting

	// GroupStates is the number of states.
	GroupStates
)

// String returns the state as metrics name it.
func (s GroupState) String() string {
	return [...]string{"ready", "exhausted", "refused", "backingOff", "restarting", "waiting", "unready", "starting"}[s]
}

// Stand returns the progress of a set.
func Stand(w SetSnapshot) Standing {
	d, _ := derive(w)
	return *d.stand(w.Set.Status.Conditions)
}

func (d *setDecision) stand(conditions []metav1.Condition) *Standing {
	counts := d.count()
	s := &Standing{
		Key: d.target.key, Ready: counts.ready, Updated: counts.updated, Pending: d.pending,
		Target: max(0, workload.Replicas(d.Set)-workload.Partition(d.Set)), TargetUpdated: counts.currentUpdated, TargetReady: counts.currentUpdatedReady,
		Surge: counts.surplus, Conditions: conditions,
		Down: d.down(), Budget: d.rollout.Budget(d.course.Replicas),
		States: d.countStates(), Unstarted: d.unstarted(),
	}
	if s.States[GroupReady] < workload.Replicas(d.Set) {
		s.Accelerators = d.accelerators()
	}
	return s
}

// down is how many wanted groups are down. A template that the StatefulSet was not given yet replaces no group.
func (d *setDecision) down() int32 {
	if workload.HasHashIdentity(d.Set) {
		return workload.Replicas(d.Set) - d.count().wantedReady
	}
	state := d.rollout
	if state.Changed {
		state.Partition = state.Replicas
	}
	return state.Down()
}

// countStates counts the wanted groups by state.
func (d *setDecision) countStates() (counted [GroupStates]int32) {
	if workload.HasHashIdentity(d.Set) {
		return d.countHashStates()
	}
	taken := d.takenLeaders()
	found := d.knownGroups(taken)
	for index, g := range found {
		state := GroupReady
		if !g.Ready(d.Set) {
			state = d.unreadyState(g, taken[index])
		}
		counted[state]++
	}
	if unknown := workload.Replicas(d.Set) - int32(len(found)); unknown > 0 { // nothing is known of them: one stands for all
		index := 0
		for found[index] != nil {
			index++
		}
		counted[d.unreadyState(&Group{Index: index}, false)] += unknown
	}
	return counted
}

// knownGroups returns the wanted groups that have objects, and those that something is known of.
func (d *setDecision) knownGroups(taken map[int]bool) map[int]*Group {
	found, indices := map[int]*Group{}, slices.AppendSeq(slices.Collect(maps.Keys(taken)), maps.Keys(d.exhaustedBy))
	for _, groups := range [][]Group{d.Groups, d.Vacant} {
		for i := range groups {
			found[groups[i].Index] = &groups[i]
		}
	}
	for _, refused := range d.Refused {
		indices = append(indices, refused.Index)
	}
	for _, failed := range d.Set.Status.Restarts {
		indices = append(indices, int(failed.Index))
	}
	for _, index := range indices {
		found[index] = cmp.Or(found[index], &Group{Index: index})
	}
	maps.DeleteFunc(found, func(index int, _ *Group) bool { return index < 0 || index >= int(workload.Replicas(d.Set)) })
	return found
}

// countHashStates counts as many groups as are wanted, those that are ready first. A group without a leader starts.
func (d *setDecision) countHashStates() (counted [GroupStates]int32) {
	var all [GroupStates]int32
	all[GroupExhausted] = int32(len(d.exhaustedBy))
	for i := range d.Groups {
		g := &d.Groups[i]
		switch {
		case d.exhaustedBy[g.Index] != nil:
		case g.Ready(d.Set):
			all[GroupReady]++
		default:
			all[d.unreadyState(g, false)]++
		}
	}
	left := workload.Replicas(d.Set)
	for state := range all {
		counted[state] = min(all[state], left)
		left -= counted[state]
	}
	counted[GroupStarting] += left
	return counted
}

// unstarted returns the groups with a leader some of whose pods have never run.
func (d *setDecision) unstarted() (found []UnstartedGroup) {
	if !restart.Recreates(d.Set) {
		return nil
	}
	for i := range d.Groups {
		if g := &d.Groups[i]; !g.Ready(d.Set) && !restart.HasStarted(d.Set, g.Index, g.Leader) {
			found = append(found, UnstartedGroup{Index: g.Index, Leader: g.Leader.UID, Pods: 1 + g.workers()})
		}
	}
	return found
}

// unreadyState returns the state of a wanted group that is not ready. taken is set if the group
// cannot have its leader's name.
func (d *setDecision) unreadyState(g *Group, taken bool) GroupState {
	decision := restart.Of(d.live, g.Leader)
	switch {
	case d.exhaustedBy[g.Index] != nil:
		return GroupExhausted
	case d.isRefused(g):
		return GroupRefused
	case decision != nil && d.Now.Before(decision.Due(d.live).Time):
		return GroupBackingOff
	case decision != nil, restart.IsRestarting(d.Set, g.Index, g.Leader):
		return GroupRestarting
	case taken && g.Leader == nil, d.held && g.Leader == nil, g.isBlocked(workload.Size(d.Set)):
		return GroupWaiting
	case g.Leader != nil && restart.HasStarted(d.Set, g.Index, g.Leader):
		return GroupUnready
	}
	return GroupStarting
}

// isRefused reports whether the API server refuses what a group needs: the spec of the set, while
// the group has no leader, or an object of the group.
func (d *setDecision) isRefused(g *Group) bool {
	if d.refusal != "" && g.Leader == nil {
		return true
	}
	for _, refused := range d.Refused {
		if refused.Index == g.Index {
			return true
		}
	}
	return false
}

// takenLeaders returns the indices of groups whose leader's name, or PVC, belongs to another object.
func (d *setDecision) takenLeaders() map[int]bool {
	taken := ordinalsOf(append(d.previousLeaders(), d.previousPVCs()...))
	for _, pod := range slices.Concat(d.Misspelt, d.Leaders.Foreign) {
		_, ordinal := identity.ParentAndOrdinal(pod.Name)
		taken[ordinal] = true
	}
	return taken
}

// isBlocked reports whether objects of other owners, or of a previous incarnation, have names that
// the group needs.
func (g *Group) isBlocked(size int32) bool {
	return len(g.Misspelt)+len(g.Workers.Foreign)+len(g.Pods.Foreign)+len(g.Gang.Previous)+len(g.Gang.Foreign) > 0 || len(g.previous(size)) > 0
}

// workers is how many workers the group has.
func (g *Group) workers() int32 {
	if sts := g.Workers.Own(); sts != nil {
		return sts.Status.Replicas
	}
	return int32(len(g.Pods.Owned))
}

// accelerators returns the extended resources that the pods of one group request.
func (d *setDecision) accelerators() map[corev1.ResourceName]resource.Quantity {
	template := &d.Set.Spec.LeaderWorkerTemplate
	leader := template.LeaderTemplate
	if leader == nil {
		leader = &template.WorkerTemplate
	}
	requested := gang.Resources(leader, &template.WorkerTemplate, workload.Size(d.Set))
	for name := range requested {
		if !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix) {
			delete(requested, name)
		}
	}
	return requested
}
