package lws

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// unreachable makes the leaders that the StatefulSet controller cannot get to.
//
// It creates pods in batches of 1, 2, 4, … by rising ordinal, and ends a sync
// with the first batch that fails. One name that is taken, by a ghost that does
// not leave or by a squatter, would keep every group after its batch from ever
// starting. Those leaders are made here, exactly as that controller would have
// made them, and are its own from then on.
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

// unreached returns the ordinals of the leaders that are missed past the first blocked
// one, and which that is.
func (d *setDecision) unreached(sts *appsv1.StatefulSet) (missed []int, blocked int) {
	taken := d.blockedOrdinals()
	if len(taken) == 0 || !workload.Observed(sts) {
		return nil, 0
	}
	borne, blocked := d.borne(), slices.Min(taken)
	for ordinal := max(lastReached(blocked)+1, int(partitionOf(sts))); ordinal < int(workload.PodsOf(sts)); ordinal++ {
		if !borne[identity.LeaderName(d.Set.Name, ordinal)] {
			missed = append(missed, ordinal)
		}
	}
	return missed, blocked
}

func partitionOf(sts *appsv1.StatefulSet) int32 {
	if rolling := sts.Spec.UpdateStrategy.RollingUpdate; rolling != nil && sts.Status.CurrentRevision != sts.Status.UpdateRevision {
		return ptr.Deref(rolling.Partition, 0)
	}
	return 0
}

// blockedOrdinals returns the ordinals whose names somebody else bears.
func (d *setDecision) blockedOrdinals() []int {
	var blocked []int
	for _, g := range d.previousLeaders() {
		_, ordinal := identity.ParentAndOrdinal(g.Name)
		blocked = append(blocked, ordinal)
	}
	if volumes := d.previousPVCs(); !d.Now.Before(d.Vigil.lastMove(volumes).Add(goOnAfter)) {
		for ordinal := range ordinalsOf(volumes) { // those that linger
			blocked = append(blocked, ordinal)
		}
	}
	for _, pod := range d.Leaders.Foreign {
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); int32(ordinal) < workload.Replicas(d.Set) {
			blocked = append(blocked, ordinal)
		}
	}
	return blocked
}

// lastReached is the highest ordinal in the batch that the blocked one is in.
func lastReached(blocked int) int {
	const largestBatch = 500
	end, batch := 0, 1
	for end < blocked {
		batch = min(batch*2, largestBatch)
		end += batch
	}
	return end
}

// borne is the names of leaders that any pod at all bears, or that have a claim on
// its way out.
func (d *setDecision) borne() map[string]bool {
	names := map[string]bool{}
	for _, pod := range slices.Concat(d.Leaders.Owned, d.Leaders.Previous, d.Leaders.Orphans, d.Leaders.Foreign) {
		names[pod.Name] = true
	}
	for ordinal := range ordinalsOf(d.previousPVCs()) { // a pod cannot have a claim that leaves
		names[identity.LeaderName(d.Set.Name, ordinal)] = true
	}
	return names
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
