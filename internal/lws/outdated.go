package lws

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// replace deletes outdated leaders that the StatefulSet controller does not replace. It has
// observed the spec, so the next pods are of the current template. The partition covers all of
// them. If others broke since, only those that are down are deleted.
func (d *setDecision) replace() (p Plan) {
	sts := d.StatefulSet.Own()
	if sts == nil || d.held || d.pvcsPending || !workload.Observed(sts) || d.rollout.changed || d.rollout.paused {
		return p
	}
	outdated := d.outdatedLeaders(sts)
	if len(outdated) == 0 {
		return p
	}
	why := d.whyNotReplaced(sts, outdated[0].Index)
	if why == "" {
		return p
	}
	covered := d.rollout.down() <= d.rollout.budget(d.rollout.running)
	for _, up := range []bool{false, true} { // those that are down first
		for _, g := range outdated {
			if d.rollout.places[g.Index].ready == up && (covered || !up) {
				p.do(d.replaceLeader(g, why, !covered))
			}
		}
	}
	return p
}

// replaceLeader deletes a leader if the spec of its StatefulSet is the one that was judged: the
// cache of an operator that is no longer the leader may lag. A leader whose group is down is
// deleted only if its workers did not change either.
func (d *setDecision) replaceLeader(g Group, why string, onlyIfDown bool) action.Delete {
	sts := d.StatefulSet.Own()
	relied := []action.Standing{{
		Kind: identity.KindStatefulSet, Namespace: d.Set.Namespace, Name: sts.Name,
		Specified: map[types.UID]int64{sts.UID: sts.Generation},
	}}
	workers := action.Standing{Kind: identity.KindStatefulSet, Namespace: d.Set.Namespace, Labels: map[string]string{lwsv1.SetNameLabelKey: d.Set.Name}}
	if onlyIfDown {
		g.reliedWorkers(&workers)
	}
	if len(workers.Unchanged)+len(workers.Absent) > 0 {
		relied = append(relied, workers)
	}
	return action.Delete{
		Object:  identity.RefOf(identity.KindPod, g.Leader),
		Relies:  relied,
		Because: because(CodeOutdated, fmt.Sprintf("leader %s is to be replaced at revision %s and the statefulset controller does not: %s", g.LeaderName, d.target.key, why)),
	}
}

// outdatedLeaders are the groups whose leaders the StatefulSet is to replace, from the top.
func (d *setDecision) outdatedLeaders(sts *appsv1.StatefulSet) []Group {
	var outdated []Group
	for _, g := range slices.Backward(d.Groups) {
		granted := int32(g.Index) >= livePartition(sts) && int32(g.Index) < workload.PodsOf(sts)
		made := g.Leader.Labels[appsv1.ControllerRevisionHashLabelKey]
		if granted && d.rollout.places[g.Index].outdated && made != sts.Status.UpdateRevision {
			outdated = append(outdated, g)
		}
	}
	return outdated
}

// whyNotReplaced says what keeps the StatefulSet controller from replacing the highest outdated
// leader, or from replacing more than one at a time, or is empty.
func (d *setDecision) whyNotReplaced(sts *appsv1.StatefulSet, highest int) string {
	budget := workload.MaxUnavailable(d.Set)
	if !dropsMaxUnavailable(sts) {
		if down := d.leadersDown(0, workload.PodsOf(sts)); down >= budget {
			return fmt.Sprintf("%d leaders are down and it lets %d be", down, budget)
		}
		return ""
	}
	if budget > 1 {
		return "it replaces one at a time, for this server knows no maxUnavailable"
	}
	if down := d.leadersDown(int32(highest)+1, workload.PodsOf(sts)); down > 0 {
		return fmt.Sprintf("it waits for %d leaders above it", down)
	}
	return ""
}

// dropsMaxUnavailable reports whether the API server drops maxUnavailable, as with its feature
// gate off: every leader StatefulSet is written with one.
func dropsMaxUnavailable(sts *appsv1.StatefulSet) bool {
	rolling := sts.Spec.UpdateStrategy.RollingUpdate
	return rolling != nil && rolling.MaxUnavailable == nil
}

// leadersDown counts the leaders in the range that are not ready.
func (d *setDecision) leadersDown(first, end int32) int32 {
	down := max(0, end-first)
	for i := range d.Groups {
		index := int32(d.Groups[i].Index)
		down -= one(index >= first && index < end && PodReady(d.Groups[i].Leader))
	}
	return down
}
