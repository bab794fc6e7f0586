package table

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// keepPVCs keeps the ownerReferences and annotations of PVCs, and turns worker StatefulSets
// to Retain. It reports whether PVCs would be deleted with their owners until then.
func keepPVCs(t *Table) (p lws.Plan, pending bool) {
	sts := t.StatefulSet.Own()
	if sts == nil || t.Held {
		return p, false
	}
	former := formerOwners(t, sts)
	for _, pvc := range t.LivePVCs() {
		if write := volumes.SetOwner(pvc, t.Live, t.inService(pvc, sts), former); write != nil {
			write.Because = lws.Because(lws.CodeTie, "PVC "+pvc.Name+" ends as the retention policy of its set says")
			write.Tell.Refused = lws.Warning("FailedUpdate", "Update", "Failed to set ownerReferences of PersistentVolumeClaim "+pvc.Name, nil)
			p.Do(*write)
		}
	}
	if written := len(p.Actions); written > 0 {
		p.Wait(lws.Wait{Reason: lws.Because(lws.CodeTie, fmt.Sprintf("ownerReferences or annotations of %d PVCs are written first", written)), Until: t.Now.Add(lws.PVCsAgain)})
		return p, true
	}
	p.Add(retainPVCs(t))
	return p, len(p.Actions)+len(p.Waits) > 0
}

// LivePVCs are the set's PVCs that are not being deleted.
func (t *Table) LivePVCs() []*volumes.PVC {
	return slices.DeleteFunc(slices.Concat(t.PVCs.Owned, t.PVCs.Orphans), func(pvc *volumes.PVC) bool { return pvc.DeletionTimestamp != nil })
}

// formerOwners are the owners that are taken from PVCs: leaders and StatefulSets. A
// StatefulSet that the StatefulSet controller still takes for one with whenDeleted Delete
// would be added again: it is left for now, unless the set takes its place as the controller.
func formerOwners(t *Table, sts *appsv1.StatefulSet) []types.UID {
	var uids []types.UID
	former := []*appsv1.StatefulSet{sts}
	for i := range t.Rows {
		uids = append(uids, t.Rows[i].Leader.UID)
		former = append(former, lws.WorkersOf(t.Rows[i].Group, t.Rows[i].Leader)...)
	}
	for _, sts := range former {
		if !volumes.Keeps(t.Live) || !volumes.AreDeletedBy(sts) && workload.Observed(sts) {
			uids = append(uids, sts.UID)
		}
	}
	return uids
}

// inService reports whether the group of a PVC has a leader that its StatefulSet is to have.
func (t *Table) inService(pvc *volumes.PVC, sts *appsv1.StatefulSet) bool {
	index := volumes.GroupIndex(pvc, t.Live)
	return index != identity.NoOrdinal && int32(index) < workload.PodsOf(sts) &&
		slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Index == index })
}

// retainPVCs turns worker StatefulSets to Retain, and waits until the StatefulSet controller takes them away as owners.
// No leader is replaced before that: its workers' PVCs would go with it.
func retainPVCs(t *Table) (p lws.Plan) {
	var owners []types.UID
	for i := range t.Rows {
		for _, sts := range lws.WorkersOf(t.Rows[i].Group, t.Rows[i].Leader) {
			owners = append(owners, sts.UID)
		}
		workers := t.Rows[i].Workers.Own()
		if workers == nil || !volumes.AreDeletedBy(workers) {
			continue
		}
		part := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{PersistentVolumeClaimRetentionPolicy: workload.RetainPVCs()}}
		p.Apply(part, identity.RefOf(identity.KindStatefulSet, workers), lws.RetentionFieldOwner,
			lws.Because(lws.CodeTie, fmt.Sprintf("statefulset %s would delete its PVCs at the next restart of its group", workers.Name)), "")
	}
	if volumes.AreOwnedBy(t.LivePVCs(), owners...) {
		p.Wait(lws.Wait{Reason: lws.Because(lws.CodeTie, "PVCs would be deleted with their worker statefulset"), Until: t.Now.Add(lws.RetainAgain)})
	}
	return p
}
