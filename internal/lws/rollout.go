package lws

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/rollout"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// rolling returns where a rolling update stands, and the partition and replicas that the leader StatefulSet is to have.
func (d *statefulSetMaker) rolling() (rollout.State, rollout.Course) {
	if sts := d.leaderStatefulSet(); sts != nil && d.target.key != "" {
		r := d.rolloutOf(sts)
		return r, r.Next()
	}
	c, inherited := rollout.Course{Partition: workload.Partition(d.Set), Replicas: workload.Replicas(d.Set)}, d.inherited()
	if Paused(d.Set) || inherited > 0 {
		c.Partition = max(c.Partition, c.Replicas)
	}
	c.Replicas = max(c.Replicas, inherited)
	return rollout.State{}, c
}

// inherited is the number of ordinals up to the highest leader that a former StatefulSet left
// behind, surge groups included, or zero. A StatefulSet that adopts them replaces outdated ones
// from its partition on at once: until then it replaces and removes none.
func (d *statefulSetMaker) inherited() int32 {
	_, surge := workload.Budget(d.Set)
	var ordinals int32
	for _, leader := range d.Leaders.Orphans {
		if _, index := identity.ParentAndOrdinal(leader.Name); int32(index) < workload.Replicas(d.Set)+surge {
			ordinals = max(ordinals, int32(index)+1)
		}
	}
	return ordinals
}

// leaderStatefulSet is the leader StatefulSet that the set owns or adopts.
func (w *SetSnapshot) leaderStatefulSet() *appsv1.StatefulSet {
	return cmp.Or(w.StatefulSet.Own(), w.StatefulSet.Orphan())
}

func (d *statefulSetMaker) rolloutOf(sts *appsv1.StatefulSet) rollout.State {
	unavailable, surge := workload.Budget(d.Set)
	r := rollout.State{
		Replicas: workload.Replicas(d.Set), Keep: workload.Partition(d.Set),
		Unavailable: min(unavailable, workload.Replicas(d.Set)), Surge: surge,
		Running: workload.PodsOf(sts), Partition: livePartition(sts), Applied: appliedReplicas(sts, workload.Replicas(d.Set)),
		Changed:  ownerOf(sts, nil).key() != d.target.key || d.isDisplaced,
		Paused:   d.holdsRollout(),
		Observed: (sts.Status.ObservedGeneration == sts.Generation || sts.Status.ObservedGeneration == 0) && d.inherited() == 0,
	}
	for i := range d.rows { // by rising index: a place is that of the row of the same position
		if g := &d.rows[i]; int32(g.Index) < max(r.Replicas, r.Running) {
			r.Places = append(r.Places, g.place(d.Set.Name))
		}
	}
	return r
}

// place is the state of a group. A leader that lost its labels counts as absent: no list by labels finds it.
func (r *row) place(set string) rollout.Place {
	labelled := workload.IsLeader(r.Leader, set)
	return rollout.Place{
		Index:    int32(r.Index),
		Outdated: r.isOutdated,
		Ready:    labelled && r.isReady,
		Updated:  labelled && r.isComplete && r.isAtTarget && !r.isOutdated,
	}
}

// livePartition is the ordinal from which a StatefulSet replaces its pods. One with OnDelete replaces none.
func livePartition(sts *appsv1.StatefulSet) int32 {
	if sts.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return workload.PodsOf(sts)
	}
	if rolling := sts.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		return ptr.Deref(rolling.Partition, 0)
	}
	return 0
}

// appliedReplicas is how many groups were wanted when a StatefulSet was last written.
func appliedReplicas(sts *appsv1.StatefulSet, otherwise int32) int32 {
	n, err := strconv.ParseInt(sts.Annotations[lwsv1.ReplicasAnnotationKey], 10, 32)
	if err != nil {
		return otherwise
	}
	return int32(n)
}

// relied are the preconditions of a rollout that are read live, after the StatefulSet was judged:
// each kind has a watch of its own, and some lag. A new template relies on the set: one from an
// earlier spec would replace pods of the present one. A lowered partition relies on groups that
// count as ready, and on those that are given up because they are down.
func (d *statefulSetMaker) relied() []action.Standing {
	if d.rollout.Changed {
		return []action.Standing{d.unchangedSet()}
	}
	if !d.rollout.Lowers(d.course) {
		return nil
	}
	leaders := action.Standing{Kind: identity.KindPod, Namespace: d.Set.Namespace, Labels: workload.LeaderSelector(d.Set.Name)}
	workers := action.Standing{Kind: identity.KindStatefulSet, Namespace: d.Set.Namespace, Labels: map[string]string{lwsv1.SetNameLabelKey: d.Set.Name}}
	first, end := d.course.Partition, min(d.rollout.Partition, d.rollout.Replicas) // of the groups that are given up
	for i, p := range d.rollout.Places {
		g := &d.rows[i]
		switch {
		case d.rollout.Serves(p):
			leaders.There = append(leaders.There, g.Leader.UID)
		case p.Index >= first && p.Index < end && workload.IsLeader(g.Leader, d.Set.Name):
			leaders.Unchanged = append(leaders.Unchanged, identity.RefOf(identity.KindPod, g.Leader))
			g.reliedWorkers(&workers)
		}
	}
	d.reliedAbsence(&leaders, first, end)
	relied := []action.Standing{leaders}
	if len(workers.Unchanged)+len(workers.NoOther) > 0 {
		relied = append(relied, workers)
	}
	return relied
}

// unchangedSet is the set as it was judged.
func (d *setDecision) unchangedSet() action.Standing {
	return action.Standing{
		Kind: identity.KindLeaderWorkerSet, Namespace: d.Set.Namespace, Name: d.Set.Name, Unchanged: []identity.Ref{setRef(d.Set)},
	}
}

// reliedAbsence adds the precondition that no other pods have the names of leaders in a range.
func (d *statefulSetMaker) reliedAbsence(relied *action.Standing, first, end int32) {
	names := action.Names{Base: d.Set.Name, First: first, End: end}
	relied.NoOther = append(relied.NoOther, names)
	for _, pod := range slices.Concat(d.Leaders.Previous, d.Leaders.Orphans, d.Leaders.Foreign) {
		if pod.DeletionTimestamp == nil && workload.IsLeader(pod, d.Set.Name) && names.Has(pod.Name) {
			relied.Unchanged = append(relied.Unchanged, identity.RefOf(identity.KindPod, pod))
		}
	}
}

// reliedWorkers adds what keeps a group from being ready beside a ready leader.
func (g *Group) reliedWorkers(relied *action.Standing) {
	if !PodReady(g.Leader) {
		return
	}
	bearers := slices.DeleteFunc(slices.Concat(g.Workers.Owned, g.Workers.Previous, g.Workers.Orphans, g.Workers.Foreign),
		func(sts *appsv1.StatefulSet) bool { return sts.DeletionTimestamp != nil }) // a terminating one counts as absent
	for _, sts := range bearers {
		if sts.Labels[lwsv1.SetNameLabelKey] == relied.Labels[lwsv1.SetNameLabelKey] { // others are not listed
			relied.Unchanged = append(relied.Unchanged, identity.RefOf(identity.KindStatefulSet, sts))
		}
	}
	if len(bearers) == 0 {
		index := int32(g.Index)
		relied.NoOther = append(relied.NoOther, action.Names{Base: relied.Labels[lwsv1.SetNameLabelKey], First: index, End: index + 1})
	}
}

// rolloutEvents names the groups that are updated next, and the surge groups that go.
func (d *statefulSetMaker) rolloutEvents() []action.Event {
	var events []action.Event
	first, last := max(d.course.Replicas, d.rollout.Applied), d.rollout.Running-1 // wanted groups are no surge
	if first <= last {
		events = append(events, action.Event{Reason: "GroupsProgressing", Action: "Delete", Note: "deleting " + d.surgeReplicas(first, last)})
	}
	if d.rollout.Lowers(d.course) {
		note := "Updating replica " + strconv.Itoa(int(d.course.Partition))
		if end := min(d.rollout.Partition, d.rollout.Replicas) - 1; end > d.course.Partition {
			note = fmt.Sprintf("Updating replicas %d to %d (inclusive)", d.course.Partition, end)
		}
		events = append(events, action.Event{Reason: "GroupsUpdating", Action: "Update", Note: note, Related: d.target.revision})
	}
	return events
}

func (d *statefulSetMaker) surgeReplicas(first, last int32) string {
	if first == last {
		return fmt.Sprintf("surge replica %s-%d", d.Set.Name, first)
	}
	return fmt.Sprintf("surge replicas from %s-%d to %s-%d", d.Set.Name, first, d.Set.Name, last)
}
