package lws

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// pvcsAgain is how soon PVCs that were written are read again.
	pvcsAgain = 50 * time.Millisecond
	// retainAgain is how soon a StatefulSet is read again that is to say Retain.
	retainAgain = time.Second
	// scaledAgain is how soon PVCs of groups scaled away are read again that are to go.
	scaledAgain = 5 * time.Second
)

// pvcs keeps the ownerReferences and annotations of PVCs, and turns worker StatefulSets
// to Retain. It reports whether PVCs would be deleted with their owners until then.
func (d *setDecision) pvcs() (p Plan, pending bool) {
	sts := d.StatefulSet.Own()
	if sts == nil || d.held || len(volumes.Templates(d.live)) == 0 {
		return p, false
	}
	former := d.formerOwners(sts)
	for _, pvc := range d.livePVCs() {
		if write := volumes.SetOwner(pvc, d.live, d.inService(pvc, sts), former); write != nil {
			write.Because = because(CodeTie, "PVC "+pvc.Name+" ends as the retention policy of its set says")
			write.Tell.Refused = warning("FailedUpdate", "Update", "Failed to set ownerReferences of PersistentVolumeClaim "+pvc.Name, nil)
			p.do(*write)
		}
	}
	if written := len(p.Actions); written > 0 {
		p.wait(Wait{Reason: because(CodeTie, fmt.Sprintf("ownerReferences or annotations of %d PVCs are written first", written)), Until: d.Now.Add(pvcsAgain)})
		return p, true
	}
	p.add(d.retainPVCs())
	return p, len(p.Actions)+len(p.Waits) > 0
}

// livePVCs are the set's PVCs that are not being deleted.
func (d *setDecision) livePVCs() []*volumes.PVC {
	return slices.DeleteFunc(slices.Concat(d.PVCs.Owned, d.PVCs.Orphans), func(pvc *volumes.PVC) bool { return pvc.DeletionTimestamp != nil })
}

// formerOwners are the owners that are taken from PVCs: leaders and StatefulSets. A
// StatefulSet that the StatefulSet controller still takes for one with whenDeleted Delete
// would be added again: it is left for now, unless the set takes its place as the controller.
func (d *setDecision) formerOwners(sts *appsv1.StatefulSet) []types.UID {
	var uids []types.UID
	former := []*appsv1.StatefulSet{sts}
	for i := range d.rows {
		uids = append(uids, d.rows[i].Leader.UID)
		former = append(former, WorkersOf(d.rows[i].Group, d.rows[i].Leader)...)
	}
	for _, sts := range former {
		if !volumes.Keeps(d.live) || !volumes.AreDeletedBy(sts) && workload.Observed(sts) {
			uids = append(uids, sts.UID)
		}
	}
	return uids
}

// inService reports whether the group of a PVC has a leader that its StatefulSet is to have.
func (d *setDecision) inService(pvc *volumes.PVC, sts *appsv1.StatefulSet) bool {
	index := volumes.GroupIndex(pvc, d.live)
	return index != identity.NoOrdinal && int32(index) < workload.PodsOf(sts) &&
		slices.ContainsFunc(d.rows, func(r row) bool { return r.Index == index })
}

// retainPVCs turns worker StatefulSets to Retain, and waits until the StatefulSet controller takes them away as owners.
// No leader is replaced before that: its workers' PVCs would go with it.
func (d *setDecision) retainPVCs() (p Plan) {
	var owners []types.UID
	for i := range d.rows {
		for _, sts := range WorkersOf(d.rows[i].Group, d.rows[i].Leader) {
			owners = append(owners, sts.UID)
		}
		workers := d.rows[i].Workers.Own()
		if workers == nil || !volumes.AreDeletedBy(workers) {
			continue
		}
		part := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{PersistentVolumeClaimRetentionPolicy: workload.RetainPVCs()}}
		p.apply(part, identity.RefOf(identity.KindStatefulSet, workers), retentionFieldOwner,
			because(CodeTie, fmt.Sprintf("statefulset %s would delete its PVCs at the next restart of its group", workers.Name)), "")
	}
	if volumes.AreOwnedBy(d.livePVCs(), owners...) {
		p.wait(Wait{Reason: because(CodeTie, "PVCs would be deleted with their worker statefulset"), Until: d.Now.Add(retainAgain)})
	}
	return p
}

// scaledPVCs deletes the PVCs of groups that were scaled away under whenScaled Delete. Only
// this reconcile raises the StatefulSet.
func (d *setDecision) scaledPVCs() (p Plan) {
	sts := d.StatefulSet.Own()
	if sts == nil || d.held || volumes.KeepsScaled(d.live) {
		return p
	}
	found := 0
	for _, pvc := range d.livePVCs() {
		index := volumes.GroupIndex(pvc, d.live)
		if !volumes.IsMarked(pvc, d.live) || int32(index) < max(workload.PodsOf(sts), workload.Replicas(d.live)) {
			continue
		}
		found++
		if !workload.Observed(sts) || sts.Status.Replicas > workload.PodsOf(sts) || d.Draining[index] {
			continue
		}
		p.do(action.Delete{
			Object: identity.RefOf(identity.KindPersistentVolumeClaim, pvc),
			Relies: []action.Standing{
				{Kind: identity.KindStatefulSet, Namespace: sts.Namespace, Name: sts.Name, Specified: map[types.UID]int64{sts.UID: sts.Generation}},
				{Kind: identity.KindPod, Namespace: sts.Namespace, None: true, Labels: map[string]string{
					lwsv1.SetNameLabelKey: d.Set.Name, lwsv1.GroupIndexLabelKey: strconv.Itoa(index),
				}},
			},
			Because: because(CodeScaledAway, fmt.Sprintf("group %d was scaled away, and whenScaled is Delete", index)),
		})
	}
	if found > 0 {
		p.wait(Wait{Reason: because(CodeTie, fmt.Sprintf("%d PVCs of groups that were scaled away are to go", found)), Until: d.Now.Add(scaledAgain)})
	}
	return p
}

// ScaledAway are the groups beyond the StatefulSet's replicas that have PVCs which are to
// go, by rising index. There are none at rest.
func ScaledAway(w SetSnapshot, created *lwsv1.LeaderWorkerSet) []int {
	sts := w.StatefulSet.Own()
	var found []int
	for _, pvc := range slices.Concat(w.PVCs.Owned, w.PVCs.Orphans) {
		index := volumes.GroupIndex(pvc, created)
		if volumes.IsMarked(pvc, w.Set) && sts != nil && int32(index) >= workload.PodsOf(sts) {
			found = append(found, index)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// retained keeps the leader while its group's StatefulSet would delete the workers' PVCs
// with it. The set's own reconcile turns that StatefulSet to Retain.
func (d *groupDecision) retained() bool {
	workers := d.Workers.Own()
	if workers == nil || len(workers.Spec.VolumeClaimTemplates) == 0 ||
		!volumes.AreDeletedBy(workers) && !volumes.AreOwnedBy(slices.Concat(d.Volumes.Owned, d.Volumes.Orphans), workers.UID) {
		return true
	}
	d.plan.await(d.Now.Add(retainAgain), CodeTie,
		fmt.Sprintf("statefulset %s would delete the PVCs of group %s: it is turned to Retain first", workers.Name, d.name()))
	return false
}

// WorkersOf are the worker StatefulSets that a leader controls, terminating or not.
func WorkersOf(g *Group, leader *corev1.Pod) []*appsv1.StatefulSet {
	return slices.DeleteFunc(slices.Concat(g.Workers.Owned, g.Workers.Previous), func(sts *appsv1.StatefulSet) bool {
		return leader == nil || !metav1.IsControlledBy(sts, leader)
	})
}
