package lws

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// createdAtMost bounds the leaders that one reconcile creates. Their events lead to the next.
const createdAtMost = 500

// unreachable creates the leaders that the StatefulSet controller does not reach.
//
// It creates pods in batches of 1, 2, 4, … by rising ordinal, and ends a sync with the first batch
// that fails. One name that a previous or foreign pod keeps would stop every group after its
// batch: all leaders whose names are free are created here then, and that controller owns them.
func (d *setDecision) unreachable() (p Plan) {
	sts := d.StatefulSet.Own()
	if sts == nil || d.held {
		return p
	}
	missed, blocked := d.unreached(sts)
	if len(missed) > 0 && d.Claims == nil && len(sts.Spec.VolumeClaimTemplates) > 0 {
		return Plan{Needs: NeedLeaderPVCs}
	}
	for _, ordinal := range missed {
		p.do(d.makeLeader(sts, ordinal, blocked)...)
	}
	return p
}

// unreached returns the ordinals of the missing leaders whose names are free while another name is
// taken, and the first taken one. A PVC takes its leader's once none has come or gone for a while.
func (d *setDecision) unreached(sts *appsv1.StatefulSet) (missed []int, blocked int) {
	pvcs := d.previousPVCs()
	taken := ordinalsOf(d.othersLeaders())
	if !d.Now.Before(d.Vigil.Moved.Add(goOnAfter)) {
		maps.Copy(taken, ordinalsOf(pvcs))
	}
	if len(taken) == 0 || !workload.Observed(sts) {
		return nil, 0
	}
	blocked = slices.Min(slices.Collect(maps.Keys(taken)))
	bearers := slices.Concat(d.Misspelt, d.Leaders.Owned, d.Leaders.Previous, d.Leaders.Orphans, d.Leaders.Foreign)
	borne := ordinalsOf(append(bearersOf(identity.KindPod, bearers), pvcs...)) // no pod starts with a PVC that is terminating
	first := 0
	if sts.Status.CurrentRevision != sts.Status.UpdateRevision {
		first = int(livePartition(sts))
	}
	for ordinal := first; ordinal < int(workload.PodsOf(sts)) && len(missed) < createdAtMost; ordinal++ {
		if !borne[ordinal] {
			missed = append(missed, ordinal)
		}
	}
	return missed, blocked
}

// othersLeaders are the pods of another owner under names of leaders that the set needs.
func (d *setDecision) othersLeaders() []bearer {
	return append(d.previousLeaders(), below(bearersOf(identity.KindPod, slices.Concat(d.Misspelt, d.Leaders.Foreign)), 0, workload.Replicas(d.Set))...)
}

func (d *setDecision) makeLeader(sts *appsv1.StatefulSet, ordinal, blocked int) (made []action.Action) {
	reason := because(CodeUnreachable, fmt.Sprintf("the statefulset controller does not get past leader %d, whose name is taken, to leader %d", blocked, ordinal))
	pod := workload.Leader(sts, ordinal)
	owner := identity.RefOf(identity.KindStatefulSet, sts)
	for _, pvc := range workload.PVCs(sts, pod.Name) {
		if !d.Claims[pvc.Name] {
			made = append(made, action.Create{Kind: identity.KindPersistentVolumeClaim, Object: pvc, Owner: owner, Because: reason})
		}
	}
	return append(made, action.Create{Kind: identity.KindPod, Object: pod, Owner: owner, Because: reason})
}
