package lws

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// The ownerReferences of the PVCs of leaders and workers alike:
//
//	whenDeleted Delete     the set
//	whenDeleted Retain     none of ours
//
// No StatefulSet deletes PVCs: a worker StatefulSet goes with every restart of its group,
// and each of them says Retain. One that another implementation or version made says
// Delete. It is turned to Retain once its PVCs are owned by the set.

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
	sts := d.StatefulSet.Member()
	if sts == nil || d.held || !HasVolumes(d.live) {
		return p, false
	}
	owner := pvcOwner(d.live)
	ours := d.formerOwners(sts, owner)
	written := 0
	for _, pvc := range d.livePVCs() {
		if write, differs := d.ownPVC(pvc, d.inService(pvc, sts), owner, ours); differs {
			p.do(write)
			written++
		}
	}
	if written > 0 {
		p.wait(Wait{Reason: because(CodeTie, fmt.Sprintf("ownerReferences or annotations of %d PVCs are written first", written)), Until: d.Now.Add(pvcsAgain)})
		return p, true
	}
	p.add(d.retainPVCs())
	p.add(d.awaitRelease())
	return p, len(p.Actions)+len(p.Waits) > 0
}

// awaitRelease keeps leaders while PVCs have their worker StatefulSet as an owner: the
// StatefulSet controller takes it away once it has seen that it says Retain.
func (d *setDecision) awaitRelease() (p Plan) {
	var workers []types.UID
	for i := range d.Groups {
		for _, sts := range WorkersOf(&d.Groups[i], d.Groups[i].Leader) {
			workers = append(workers, sts.UID)
		}
	}
	for _, pvc := range d.livePVCs() {
		if slices.ContainsFunc(pvc.OwnerReferences, func(o metav1.OwnerReference) bool { return slices.Contains(workers, o.UID) }) {
			p.wait(Wait{Reason: because(CodeTie, "PVC "+pvc.Name+" would be deleted with its worker statefulset"), Until: d.Now.Add(retainAgain)})
			return p
		}
	}
	return p
}

// livePVCs are the set's PVCs that are not being deleted.
func (d *setDecision) livePVCs() []*Volume {
	return slices.DeleteFunc(slices.Concat(d.PVCs.Members, d.PVCs.Orphans), func(v *Volume) bool { return v.DeletionTimestamp != nil })
}

// pvcOwner is the ownerReference of PVCs that end with the set, or nil. The set is the
// controller: the StatefulSet controller leaves a PVC alone that has another controller,
// so the two never write against each other.
func pvcOwner(set *lwsv1.LeaderWorkerSet) *metav1.OwnerReference {
	if KeepsVolumes(set) {
		return nil
	}
	yes := true
	return &metav1.OwnerReference{
		APIVersion: lwsv1.GroupVersion.String(), Kind: string(identity.KindLeaderWorkerSet), Name: set.Name, UID: set.UID, Controller: &yes,
	}
}

// formerOwners are the owners that are taken from PVCs: the set, its leaders and its
// StatefulSets. A StatefulSet that the StatefulSet controller still takes for one with
// whenDeleted Delete would be added again: it is left for now, unless the set takes its
// place as the controller.
func (d *setDecision) formerOwners(sts *appsv1.StatefulSet, owner *metav1.OwnerReference) []types.UID {
	uids := []types.UID{d.Set.UID}
	add := func(sts *appsv1.StatefulSet) {
		if owner != nil || !deletesPVCs(sts) && workload.Observed(sts) {
			uids = append(uids, sts.UID)
		}
	}
	add(sts)
	for i := range d.Groups {
		uids = append(uids, d.Groups[i].Leader.UID)
		for _, workers := range WorkersOf(&d.Groups[i], d.Groups[i].Leader) {
			add(workers)
		}
	}
	return uids
}

// inService reports whether the group of a PVC has a leader that its StatefulSet is to have.
func (d *setDecision) inService(pvc *Volume, sts *appsv1.StatefulSet) bool {
	index := groupOfPVC(pvc, d.live)
	return index != identity.NoOrdinal && int32(index) < workload.PodsOf(sts) &&
		slices.ContainsFunc(d.Groups, func(g Group) bool { return g.Index == index })
}

// groupOfPVC is the index of the group that a PVC is named after, or NoOrdinal.
func groupOfPVC(pvc *Volume, set *lwsv1.LeaderWorkerSet) int {
	if index := volumeOrdinal(pvc.Name, set, set.Name); index != identity.NoOrdinal {
		return index
	}
	index, err := strconv.Atoi(pvc.Labels[lwsv1.GroupIndexLabelKey])
	if err != nil || volumeOrdinal(pvc.Name, set, identity.LeaderName(set.Name, index)) == identity.NoOrdinal {
		return identity.NoOrdinal
	}
	return index
}

// ownPVC is the write that gives a PVC its ownerReferences and the annotation WhenScaled,
// and whether there is anything to write. Owners that others gave it stay.
func (d *setDecision) ownPVC(pvc *Volume, inService bool, owner *metav1.OwnerReference, ours []types.UID) (action.Tie, bool) {
	write := action.Tie{
		Object:  identity.RefOf(identity.KindPersistentVolumeClaim, pvc),
		Owners:  pvc.OwnerReferences,
		Because: because(CodeTie, "PVC "+pvc.Name+" ends as the retention policy of its set says"),
		Tell: action.Telling{Refused: &action.Event{
			Warning: true, Reason: "FailedTie", Action: "Update",
			Note: "Failed to set ownerReferences of PersistentVolumeClaim " + pvc.Name,
		}},
	}
	owned := owner != nil && metav1.IsControlledBy(pvc, d.Set)
	former := func(o metav1.OwnerReference) bool {
		return slices.Contains(ours, o.UID) && (owner == nil || o.UID != owner.UID)
	}
	differs := slices.ContainsFunc(pvc.OwnerReferences, former) && (owner == nil || inService)
	if owner != nil && inService && !owned {
		ref := setRef(d.Set)
		write.To, differs = &ref, true
	}
	if differs {
		write.Owners = slices.DeleteFunc(slices.Clone(pvc.OwnerReferences), func(o metav1.OwnerReference) bool {
			return former(o) || write.To != nil && o.UID == owner.UID
		})
		if write.To != nil {
			write.Owners = append(write.Owners, *owner)
		}
	}
	marked := pvc.Annotations[WhenScaledAnnotationKey]
	switch {
	case keepsVolumesScaled(d.live) && marked == string(d.Set.UID):
		write.Annotations, differs = map[string]string{WhenScaledAnnotationKey: ""}, true
	case !keepsVolumesScaled(d.live) && inService && marked != string(d.Set.UID):
		write.Annotations, differs = map[string]string{WhenScaledAnnotationKey: string(d.Set.UID)}, true
	}
	return write, differs
}

// deletesPVCs reports whether a StatefulSet has a part in the end of its PVCs, which
// another implementation or version gave it.
func deletesPVCs(sts *appsv1.StatefulSet) bool {
	policy := sts.Spec.PersistentVolumeClaimRetentionPolicy
	return len(sts.Spec.VolumeClaimTemplates) > 0 && policy != nil &&
		(policy.WhenDeleted == deleteVolumes || policy.WhenScaled == deleteVolumes)
}

// retainPVCs turns worker StatefulSets to Retain. No leader is replaced before that: its
// workers' PVCs would go with it.
func (d *setDecision) retainPVCs() (p Plan) {
	for i := range d.Groups {
		workers := d.Groups[i].Workers.Member()
		if workers == nil || !deletesPVCs(workers) {
			continue
		}
		p.do(action.Apply{
			Object:     &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{PersistentVolumeClaimRetentionPolicy: workload.RetainPVCs()}},
			Onto:       identity.RefOf(identity.KindStatefulSet, workers),
			FieldOwner: retentionFieldOwner,
			Because:    because(CodeTie, fmt.Sprintf("statefulset %s would delete its PVCs at the next restart of its group", workers.Name)),
		})
	}
	return p
}

// scaledPVCs deletes the PVCs of groups that were scaled away under whenScaled Delete. The
// annotation says that they were in service in this incarnation of the set: PVCs of a
// former set, and those kept before, lack it. Only this reconcile raises the StatefulSet.
func (d *setDecision) scaledPVCs() (p Plan) {
	sts := d.StatefulSet.Member()
	if sts == nil || d.held || !HasVolumes(d.live) || keepsVolumesScaled(d.live) {
		return p
	}
	found := 0
	for _, pvc := range d.livePVCs() {
		index := groupOfPVC(pvc, d.live)
		if pvc.Annotations[WhenScaledAnnotationKey] != string(d.Set.UID) || int32(index) < max(workload.PodsOf(sts), workload.Replicas(d.live)) {
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
func ScaledAway(w SetSnapshot, made *lwsv1.LeaderWorkerSet) []int {
	sts := w.StatefulSet.Member()
	var found []int
	for _, pvc := range slices.Concat(w.PVCs.Members, w.PVCs.Orphans) {
		index := groupOfPVC(pvc, made)
		if pvc.Annotations[WhenScaledAnnotationKey] == string(w.Set.UID) && sts != nil && int32(index) >= workload.PodsOf(sts) {
			found = append(found, index)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// retained keeps the leader while its group's StatefulSet would delete the workers' PVCs
// with it. The set's own reconcile turns that StatefulSet to Retain.
func (d *groupDecision) retained() bool {
	workers := d.Workers.Member()
	if workers == nil || len(workers.Spec.VolumeClaimTemplates) == 0 {
		return true
	}
	owned := slices.ContainsFunc(slices.Concat(d.Volumes.Members, d.Volumes.Orphans), func(pvc *Volume) bool {
		return slices.ContainsFunc(pvc.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == workers.UID })
	})
	if !owned && !deletesPVCs(workers) {
		return true
	}
	d.plan.wait(Wait{
		Reason: because(CodeTie, fmt.Sprintf("statefulset %s would delete the PVCs of group %d: it is turned to Retain first", workers.Name, d.Index)),
		Until:  d.Now.Add(retainAgain),
	})
	return false
}
