package leaders

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/rollout"
)

func (m *statefulSetMaker) Missing() (code, object string, n int32) {
	if sts := m.StatefulSet.Own(); sts != nil && m.Conflict == "" && m.isFirstFree(sts) && m.Stalls(sts, m.Stalled) {
		return lws.CodeFailedCreate, "statefulset " + sts.Name, max(1, workload.Replicas(m.Set)-sts.Status.Replicas)
	}
	return "", "", 0
}

// Runnable are the keys of the revisions that leaders run or may be created at: below the partition the StatefulSet
// controller uses its previous template. The keys are unknown until that controller has observed the present template,
// and until a leader shows the key of the previous one.
func (m *statefulSetMaker) Runnable() (keys map[string]bool, known bool) {
	sts := m.StatefulSet.Own()
	if sts == nil || m.LeadersKey() != m.Target.Key || !workload.Observed(sts) {
		return nil, false
	}
	keys = map[string]bool{m.Target.Key: true}
	for _, leader := range m.Leaders.Owned {
		keys[leader.Labels[lwsv1.RevisionKey]] = true
	}
	if lws.LivePartition(sts) == 0 || sts.Status.CurrentRevision == sts.Status.UpdateRevision {
		return keys, true
	}
	return keys, slices.ContainsFunc(m.Leaders.Owned, func(leader *corev1.Pod) bool {
		return leader.Labels[lwsv1.RevisionKey] != "" && leader.Labels[appsv1.ControllerRevisionHashLabelKey] == sts.Status.CurrentRevision
	})
}

func (m *statefulSetMaker) Differs(desired action.Object, applied string) bool {
	sts := m.StatefulSet.Own()
	return !leadersWait(m.Table, sts) && !inStep(sts, desired.(*appsv1.StatefulSet), applied)
}

// Record implements Maker: the hash of the fields that the apply sets, and the generation and UID that the StatefulSet
// has afterwards.
func (m *statefulSetMaker) Record(desired action.Object, applied string) string {
	live := m.LeaderStatefulSet()
	isChanged := !wasUndone(live, applied) && !lws.Contains(&live.Spec, attainable(live, desired.(*appsv1.StatefulSet)))
	return fmt.Sprintf("%s.%d.%s", applied, live.Generation+int64(lws.One(isChanged)), live.UID)
}

// Desired implements Maker. A StatefulSet refuses other templates of claims, even with the same meaning.
//
// A new StatefulSet has the label of its role, on which users select. An apply would remove the label from a
// StatefulSet that has it; one from before is not written for it.
func (m *statefulSetMaker) Desired() (action.Object, *corev1.PodTemplateSpec) {
	desired := workload.LeaderStatefulSet(m.Set, m.Target.Key, m.Course.Replicas, m.Course.Partition)
	role := lwsv1.LeaderRole
	if live := m.LeaderStatefulSet(); live != nil {
		role = live.Labels[lwsv1.RoleLabelKey]
		claims := live.Spec.VolumeClaimTemplates
		if m.OtherClaims != "" || workload.SameClaimTemplates(claims, desired.Spec.VolumeClaimTemplates) {
			desired.Spec.VolumeClaimTemplates = claims
		}
	}
	if role != "" {
		desired.Labels[lwsv1.RoleLabelKey] = role
	}
	return desired, &desired.Spec.Template
}

// Explain implements Maker. It names the groups that are updated next, and the surge groups that are deleted.
func (m *statefulSetMaker) Explain(write *action.Apply) {
	write.Because = lws.Because(lws.CodeChanged, fmt.Sprintf("statefulset %s differs from the spec", m.Set.Name))
	if m.Rollout.Changed {
		write.Relies = []action.Standing{unchangedSet(m.Table)}
	}
	first, last := max(m.Course.Replicas, m.Rollout.Applied), m.Rollout.Running-1 // wanted groups are no surge
	if first <= last {
		deletes := lws.Event("GroupsProgressing", "Delete", "deleting "+m.surgeReplicas(first, last), nil)
		write.Tell.Done = append(write.Tell.Done, deletes)
	}
	if !m.Rollout.Lowers(m.Course) {
		return
	}
	write.Relies = m.relied()
	write.Because = lws.Because(lws.CodeRollout, fmt.Sprintf("groups from %d on go to revision %s: %d of %d are down, and %d may be",
		m.Course.Partition, m.Target.Title(), m.Down, m.Rollout.Replicas, m.Budget))
	note := "Updating replica " + strconv.Itoa(int(m.Course.Partition))
	if end := min(m.Rollout.Partition, m.Rollout.Replicas) - 1; end > m.Course.Partition {
		note = fmt.Sprintf("Updating replicas %d to %d (inclusive)", m.Course.Partition, end)
	}
	write.Tell.Done = append(write.Tell.Done, lws.Event("GroupsUpdating", "Update", note, m.Target.Revision))
}

// wasUndone reports whether a webhook undid the same write: it was the create, or an apply that did not reach the
// generation that it recorded. A record that is too low costs one more apply; one that is too high hides a change.
func wasUndone(live *appsv1.StatefulSet, fingerprint string) bool {
	generation, isRecorded := recordedGeneration(live, fingerprint)
	return live.Annotations[lws.AppliedAnnotationKey] == fingerprint || isRecorded && generation > live.Generation
}

// recordedGeneration returns the generation that the last apply recorded, if it was an apply of
// the same fields onto the same StatefulSet.
func recordedGeneration(live *appsv1.StatefulSet, fingerprint string) (generation int64, isRecorded bool) {
	applied, record, _ := strings.Cut(live.Annotations[lws.AppliedAnnotationKey], ".")
	_, err := fmt.Sscanf(record, "%d."+string(live.UID), &generation)
	return generation, applied == fingerprint && err == nil
}

// inStep reports whether a StatefulSet needs no apply: what was applied last is wanted, and the spec was not changed
// since. A webhook may have changed what was applied: another apply would change nothing and never end.
func inStep(live, desired *appsv1.StatefulSet, fingerprint string) bool {
	const wanted = lwsv1.ReplicasAnnotationKey // a rollout goes by it
	generation, isRecorded := recordedGeneration(live, fingerprint)
	return strings.HasPrefix(live.Annotations[lws.AppliedAnnotationKey]+".", fingerprint+".") &&
		isLabelledAs(live, desired) && live.Annotations[wanted] == desired.Annotations[wanted] &&
		(isRecorded && live.Generation == generation || lws.Contains(&live.Spec, attainable(live, desired)))
}

// attainable leaves out what a write cannot change: volumeClaimTemplates, and the maxUnavailable
// that an API server drops whose feature gate is off.
func attainable(live, desired *appsv1.StatefulSet) *appsv1.StatefulSetSpec {
	spec := desired.Spec
	spec.VolumeClaimTemplates = nil
	if dropsMaxUnavailable(live) {
		rolling := *spec.UpdateStrategy.RollingUpdate
		rolling.MaxUnavailable = nil
		spec.UpdateStrategy.RollingUpdate = &rolling
	}
	return &spec
}

// replace deletes outdated leaders that the StatefulSet controller does not replace. It has
// observed the spec, so the next pods are of the current template. The partition covers all of
// them. If others broke since, only those that are down are deleted.
func (m *statefulSetMaker) replace() (p lws.Plan) {
	sts := m.StatefulSet.Own()
	if sts == nil || m.Held || m.PVCsPending || !workload.Observed(sts) || m.Rollout.Changed || m.Rollout.Paused {
		return p
	}
	outdated := m.outdatedLeaders(sts)
	if len(outdated) == 0 || !m.leavesOutdated(sts, m.Rows[outdated[0]].Index) {
		return p
	}
	covered := m.Rollout.Down() <= m.Rollout.Budget(m.Rollout.Running)
	for _, up := range []bool{false, true} { // those that are down first
		for _, i := range outdated {
			if m.Rollout.Places[i].Ready == up && (covered || !up) {
				p.Do(m.replaceLeader(m.Rows[i].Group, !covered))
			}
		}
	}
	return p
}

// replaceLeader deletes a leader if the spec of its StatefulSet is the one that was judged: the
// cache of an operator that is no longer the leader may lag. A leader whose group is down is
// deleted only if its workers did not change either.
func (m *statefulSetMaker) replaceLeader(g *lws.Group, onlyIfDown bool) action.Delete {
	relied := []action.Standing{lws.Specified(identity.KindStatefulSet, m.StatefulSet.Own())}
	if onlyIfDown {
		relied = append(relied, m.reliedWorkers(g)...)
	}
	return action.Delete{
		Object:  identity.RefOf(identity.KindPod, g.Leader),
		Relies:  relied,
		Because: lws.Because(lws.CodeOutdated, fmt.Sprintf("leader %s is to be replaced at revision %s, and the statefulset controller waits for leaders that are down", g.LeaderName, m.Target.Title())),
	}
}

// outdatedLeaders are the positions of groups whose leaders the StatefulSet is to replace, from the top.
func (m *statefulSetMaker) outdatedLeaders(sts *appsv1.StatefulSet) (outdated []int) {
	for i, p := range slices.Backward(m.Rollout.Places) {
		granted := p.Index >= lws.LivePartition(sts) && p.Index < workload.PodsOf(sts)
		made := m.Rows[i].Leader.Labels[appsv1.ControllerRevisionHashLabelKey]
		if granted && p.Outdated && made != sts.Status.UpdateRevision {
			outdated = append(outdated, i)
		}
	}
	return outdated
}

// leavesOutdated reports whether leaders that are down keep the StatefulSet controller from replacing
// the highest outdated leader. A server without maxUnavailable replaces one at a time, from the top.
func (m *statefulSetMaker) leavesOutdated(sts *appsv1.StatefulSet, highest int) bool {
	budget := workload.MaxUnavailable(m.Set)
	if dropsMaxUnavailable(sts) {
		return budget > 1 || m.leadersDown(int32(highest)+1, workload.PodsOf(sts)) > 0
	}
	return m.leadersDown(0, workload.PodsOf(sts)) >= budget
}

// dropsMaxUnavailable reports whether the API server drops maxUnavailable, as with its feature
// gate off: every leader StatefulSet is written with one.
func dropsMaxUnavailable(sts *appsv1.StatefulSet) bool {
	rolling := sts.Spec.UpdateStrategy.RollingUpdate
	return rolling != nil && rolling.MaxUnavailable == nil
}

// leadersDown counts the leaders in the range that are not ready.
func (m *statefulSetMaker) leadersDown(first, end int32) int32 {
	down := max(0, end-first)
	for i := range m.Rows {
		index := int32(m.Rows[i].Index)
		down -= lws.One(index >= first && index < end && lws.PodReady(m.Rows[i].Leader))
	}
	return down
}

func (m *statefulSetMaker) AsksFor(r *table.Row) (isWanted, isCurrent bool) {
	isWanted = int32(r.Index) < workload.Replicas(m.Set)
	return isWanted, isWanted && int32(r.Index) >= workload.Partition(m.Set)
}

func (m *statefulSetMaker) Needed(all []lws.Object) []lws.Object {
	return lws.Below(all, 0, workload.Replicas(m.Set))
}

func (m *statefulSetMaker) IsOutdated(leader *corev1.Pod) bool {
	return leader.Labels[lwsv1.RevisionKey] != m.Target.Key || workload.LeftBehind(m.LeaderStatefulSet(), leader)
}

func (m *statefulSetMaker) Correct(c *lws.Standing) {
	c.Down = m.Rollout.Down()
	for i := range m.Rows {
		c.Surge += lws.One(int32(m.Rows[i].Index) >= m.Course.Replicas)
	}
}

// Moves implements Maker. The partition has granted some groups, and grants all others from the user's on unless the
// rollout is paused.
func (m *statefulSetMaker) Moves() bool {
	r := m.Rollout
	return slices.ContainsFunc(r.Places, func(p rollout.Place) bool {
		return p.Outdated && p.Index >= r.Keep && p.Index < r.Replicas && (!r.Paused || p.Index >= r.Partition && !r.Changed)
	})
}

// Places implements Maker: those of the spec, and surge groups. A leader has the same name again.
func (m *statefulSetMaker) Places() (n int32, isPlace func(leader string) bool) {
	n = max(workload.Replicas(m.Set), m.Course.Replicas)
	if sts := m.LeaderStatefulSet(); sts != nil {
		n = max(n, workload.PodsOf(sts))
	}
	names := action.Names{Base: m.Set.Name, End: n}
	return n, names.Has
}

// Settle implements Maker. It marks the records of leaders that the rollout replaces. It does so before the partition
// is lowered: a new template starts with no group replaced. They are unmarked once the StatefulSet controller has
// observed a template that keeps them. Groups up to the last that exists or is wanted may come back.
func (m *statefulSetMaker) Settle(s *restart.Status) {
	isSettled := m.Rollout.Observed && !m.Rollout.Changed
	var leaders []*corev1.Pod
	isReplaced := map[int]bool{}
	for i, p := range m.Rollout.Places {
		isNext := p.Index >= m.Rollout.Keep && (!m.Rollout.Paused || p.Index >= m.Rollout.Partition)
		isReplaced[int(p.Index)] = isNext && p.Outdated
		if isNext && p.Outdated || isSettled {
			leaders = append(leaders, m.Rows[i].Leader)
		}
	}
	s.Expect(m.Live, leaders, func(index int) bool { return isReplaced[index] })
	end := workload.Replicas(m.Set)
	if owner := m.LeadersOwner(); owner != nil {
		end = max(end, owner.Wants)
	}
	if n := len(m.Rows); n > 0 { // by rising index
		end = max(end, int32(m.Rows[n-1].Index)+1)
	}
	s.Trim(end)
}

// LeftBehind implements maker. The next leader of an ordinal adopts its workers.
func (m *statefulSetMaker) LeftBehind() []lws.Object { return nil }

// Admit implements maker. Each group lifts the gate of its leader.
func (m *statefulSetMaker) Admit() (p lws.Plan) { return p }

// Repair implements Maker: it replaces leaders, or wakes the StatefulSet controller when the name of one is free again.
func (m *statefulSetMaker) Repair() lws.Plan {
	p, sts := m.replace(), m.StatefulSet.Own()
	if len(p.Actions) == 0 && sts != nil && workload.LacksPods(sts) {
		p.TouchStalled(sts, m.Now, m.Stalled, m.isFirstFree(sts))
	}
	return p
}

// podsInGang is how many pods of the group are in the PodGroup.
func podsInGang(r *table.Row) int32 {
	if r.IsStopped || !gang.IsHanded(r.Leader) {
		return 0
	}
	return r.Size
}

func (m *statefulSetMaker) InService() (sizes []int32, room int32) {
	serving := m.Course.Replicas
	if sts := m.LeaderStatefulSet(); sts != nil {
		serving = workload.PodsOf(sts)
		if m.Refusal.Sentence == "" && !m.Held && !leadersWait(m.Table, sts) { // the count goes first, or a part is placed alone
			serving = max(serving, m.Course.Replicas)
		}
	}
	for _, r := range m.All() {
		switch {
		case int32(r.Index) >= serving:
		case r.Leader != nil:
			sizes = append(sizes, podsInGang(&r))
		case r.IsStopped:
			sizes = append(sizes, 0)
		}
	}
	return sizes, serving - int32(len(sizes))
}

// Rolling returns where a rolling update stands, and the partition and replicas that the leader StatefulSet is to have.
func (m *statefulSetMaker) Rolling() (rollout.State, rollout.Course) {
	sts := m.LeaderStatefulSet()
	if sts == nil || m.Target.Key == "" {
		return rollout.State{}, m.begun()
	}
	unavailable, surge := workload.Budget(m.Set)
	r := rollout.State{
		Replicas: workload.Replicas(m.Set), Keep: workload.Partition(m.Set),
		Unavailable: min(unavailable, workload.Replicas(m.Set)), Surge: surge,
		Running: workload.PodsOf(sts), Partition: lws.LivePartition(sts), Applied: appliedReplicas(sts, workload.Replicas(m.Set)),
		Changed:  lws.OwnerOf(sts, nil).Key() != m.Target.Key || m.IsDisplaced,
		Paused:   m.HoldsRollout(),
		Observed: (sts.Status.ObservedGeneration == sts.Generation || sts.Status.ObservedGeneration == 0) && m.inherited() == 0,
	}
	for i := range m.Rows { // by rising index: a place is that of the row of the same position
		if place := m.Rows[i].Place; place.Index < max(r.Replicas, r.Running) {
			r.Places = append(r.Places, place)
		}
	}
	return r, r.Next()
}

// begun is the course of a StatefulSet that is created, or adopted before the target is known.
func (m *statefulSetMaker) begun() rollout.Course {
	c, inherited := rollout.Course{Partition: workload.Partition(m.Set), Replicas: workload.Replicas(m.Set)}, m.inherited()
	if lws.Paused(m.Set) || inherited > 0 {
		c.Partition = max(c.Partition, c.Replicas)
	}
	c.Replicas = max(c.Replicas, inherited)
	return c
}

// inherited is the number of ordinals up to the highest leader that a former StatefulSet left
// behind, surge groups included, or zero. A StatefulSet that adopts them replaces outdated ones
// from its partition on at once: until then it replaces and removes none.
func (m *statefulSetMaker) inherited() int32 {
	_, surge := workload.Budget(m.Set)
	leaders := lws.Below(lws.ObjectsOf(identity.KindPod, m.Leaders.Orphans), 0, workload.Replicas(m.Set)+surge)
	return int32(slices.Max(append(slices.Collect(maps.Keys(lws.OrdinalsOf(leaders))), -1)) + 1)
}

// appliedReplicas is how many groups were wanted when a StatefulSet was last written.
func appliedReplicas(sts *appsv1.StatefulSet, otherwise int32) int32 {
	if n, err := strconv.ParseInt(sts.Annotations[lwsv1.ReplicasAnnotationKey], 10, 32); err == nil {
		return int32(n)
	}
	return otherwise
}

// relied are the preconditions of a lowered partition that are read live, after the StatefulSet was judged: each kind
// has a watch of its own, and some lag. It relies on groups that count as ready, and on those that are given up because
// they are down: no other pods have the names of their leaders.
func (m *statefulSetMaker) relied() []action.Standing {
	leaders := unchangedLeaders(m.Table)
	first, end := m.Course.Partition, min(m.Rollout.Partition, m.Rollout.Replicas) // of the groups that are given up
	var givenUp []*lws.Group
	for i, p := range m.Rollout.Places {
		g := &m.Rows[i]
		switch {
		case m.Rollout.Serves(p):
			leaders.There = append(leaders.There, g.Leader.UID)
		case p.Index >= first && p.Index < end && workload.IsLeader(g.Leader, m.Set.Name):
			leaders.Unchanged = append(leaders.Unchanged, identity.RefOf(identity.KindPod, g.Leader))
			givenUp = append(givenUp, g.Group)
		}
	}
	names := action.Names{Base: m.Set.Name, First: first, End: end}
	leaders.NoOther = append(leaders.NoOther, names)
	for _, pod := range slices.Concat(m.Leaders.Previous, m.Leaders.Orphans, m.Leaders.Foreign) {
		if pod.DeletionTimestamp == nil && workload.IsLeader(pod, m.Set.Name) && names.Has(pod.Name) {
			leaders.Unchanged = append(leaders.Unchanged, identity.RefOf(identity.KindPod, pod))
		}
	}
	relied := []action.Standing{leaders}
	if len(givenUp) > 0 {
		relied = append(relied, m.reliedWorkers(givenUp...)...)
	}
	return relied
}

// unchangedLeaders are leaders of the set as they were judged. Those that are meant are added.
func unchangedLeaders(t *table.Table) action.Standing {
	return action.Standing{Kind: identity.KindPod, Namespace: t.Set.Namespace, Labels: workload.LeaderSelector(t.Set.Name)}
}

// unchangedSet is the set as it was judged. A new template relies on it: one from an earlier spec would replace pods of
// the present one.
func unchangedSet(t *table.Table) action.Standing {
	return action.Standing{
		Kind: identity.KindLeaderWorkerSet, Namespace: t.Set.Namespace, Name: t.Set.Name, Unchanged: []identity.Ref{lws.SetRef(t.Set)},
	}
}

// reliedWorkers returns the preconditions that the workers of groups with ready leaders have not changed, or none.
func (m *statefulSetMaker) reliedWorkers(groups ...*lws.Group) []action.Standing {
	labels := map[string]string{lwsv1.SetNameLabelKey: m.Set.Name}
	relied := action.Standing{Kind: identity.KindStatefulSet, Namespace: m.Set.Namespace, Labels: labels}
	for _, g := range groups {
		if !lws.PodReady(g.Leader) {
			continue
		}
		bearers := slices.DeleteFunc(slices.Concat(g.Workers.Owned, g.Workers.Previous, g.Workers.Orphans, g.Workers.Foreign),
			func(sts *appsv1.StatefulSet) bool { return sts.DeletionTimestamp != nil }) // a terminating one counts as absent
		for _, sts := range bearers {
			if workload.BearsName(sts, m.Set.Name) { // others are not listed
				relied.Unchanged = append(relied.Unchanged, identity.RefOf(identity.KindStatefulSet, sts))
			}
		}
		if index := int32(g.Index); len(bearers) == 0 {
			relied.NoOther = append(relied.NoOther, action.Names{Base: m.Set.Name, First: index, End: index + 1})
		}
	}
	if len(relied.Unchanged)+len(relied.NoOther) == 0 {
		return nil
	}
	return []action.Standing{relied}
}

func (m *statefulSetMaker) surgeReplicas(first, last int32) string {
	if first == last {
		return fmt.Sprintf("surge replica %s-%d", m.Set.Name, first)
	}
	return fmt.Sprintf("surge replicas from %s-%d to %s-%d", m.Set.Name, first, m.Set.Name, last)
}

// isFirstFree reports whether a leader is missing, and no other owner's pod or PVC has the name of
// the first missing one. Once it has, the leaders after it are created by the operator.
func (m *statefulSetMaker) isFirstFree(sts *appsv1.StatefulSet) bool {
	others := slices.Concat(m.PreviousLeaders(), lws.ObjectsOf(identity.KindPod, slices.Concat(m.Misspelt, m.Leaders.Foreign)), m.PreviousPVCs())
	return lws.IsFirstFree(sts, m.Leaders, others, 0)
}
