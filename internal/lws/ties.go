package lws

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// What a volume claim of a worker belongs to:
//
//	in service, whenDeleted Retain          nobody
//	in service, whenDeleted Delete          the set
//	scaled away, whenScaled Delete          its last leader
//
// and never to the worker StatefulSet, which goes with every restart of its group.
// The claims of leaders are the StatefulSet controller's: their StatefulSet stays.

const (
	// tieLook is how soon what was tied is looked at again.
	tieLook = 50 * time.Millisecond
	// disarmLook is how soon a StatefulSet is looked at again whose controller has yet
	// to see that claims are none of its business. Its word is an event.
	disarmLook = time.Second
)

// ties keeps the claims of the group's workers out of its restarts. It comes before
// everything else: a pass that ties does nothing else, so that whatever deletes a
// leader has seen its group's claims tied.
//
// Claims that another implementation left to a worker StatefulSet are taken from it
// while their leader leaves, too: a restart that nobody asked us for is one as well.
func (d *groupDecision) ties() bool {
	leader := d.Leader
	if leader == nil && d.LeaderSet != nil && int32(d.Index) < PodsOf(d.LeaderSet) {
		leader = d.Leaving
	}
	if leader == nil || !HasVolumes(d.Set) {
		return true
	}
	// The set decides what becomes of one that is scaled away. But a leader that leaves
	// before the StatefulSet was lowered is not its last one: it takes no claim along.
	parting := int32(d.Index) >= Replicas(d.Set) && d.Leader != nil
	return !d.plan.tie(d.Set, &d.Group, leader, d.Now, inService(d.Set), parting)
}

// ties has the claims of groups tied that are about to lose their leaders: those
// that are scaled away, and those that the StatefulSet controller is let replace.
// It comes before what gives them up; but claims that end with a scaling down are tied
// after it.
func (d *setDecision) ties() {
	sts := d.StatefulSet.Member()
	if sts == nil || d.held || !HasVolumes(d.Set) {
		return
	}
	for i := range d.Groups {
		g := &d.Groups[i]
		switch {
		case int32(g.Index) >= d.course.replicas && !keepsVolumesScaled(d.live):
			d.part(sts, &Parting{Group: *g, Last: g.Leader})
		case int32(g.Index) >= d.course.replicas:
			d.untied = d.plan.tie(d.live, g, g.Leader, d.Now, inService(d.live), false) || d.untied
		case GivenUp(sts, d.Set, *g):
			d.untied = d.plan.tie(d.live, g, g.Leader, d.Now, inService(d.live), false) || d.untied
		}
	}
	for i := range d.Leaderless {
		if g := &d.Leaderless[i]; int32(g.Index) >= d.course.replicas {
			d.part(sts, g)
		}
	}
	d.boundParting()
	d.loosen(sts)
}

// GivenUp tells whether a group's leader may go in a rollout or with a scaling
// down, so that the set sees to the claims of its workers.
func GivenUp(sts *appsv1.StatefulSet, set *lwsv1.LeaderWorkerSet, g Group) bool {
	return int32(g.Index) >= Replicas(set) || g.Leader != nil && outdated(sts, g.Leader, leadersKey(sts))
}

// loosen lets go of the claims of groups that are long gone, once they are to
// outlive the set: nobody else would.
func (d *setDecision) loosen(sts *appsv1.StatefulSet) {
	for _, volume := range d.Tied {
		ordinal := volumeOrdinal(volume.Name, d.Set, d.Set.Name)
		if metav1.IsControlledBy(volume, sts) && int32(ordinal) < PodsOf(sts) {
			continue // the StatefulSet controller's own
		}
		owners := slices.DeleteFunc(slices.Clone(volume.OwnerReferences), func(o metav1.OwnerReference) bool {
			return o.UID == d.Set.UID || o.UID == sts.UID
		})
		d.plan.do(tie(volume, owners, nil, "claims are to outlive the set"))
	}
}

// inService is what the claims of groups in service belong to, or nil.
func inService(set *lwsv1.LeaderWorkerSet) *metav1.OwnerReference {
	if KeepsVolumes(set) {
		return nil
	}
	yes := true
	return &metav1.OwnerReference{
		APIVersion: lwsv1.GroupVersion.String(), Kind: string(identity.KindLeaderWorkerSet), Name: set.Name, UID: set.UID,
		Controller: &yes, // or the StatefulSet controller would add a StatefulSet that an earlier policy tells it to
	}
}

// podOwner is what the claims of a group that is scaled away belong to.
func podOwner(leader *corev1.Pod) *metav1.OwnerReference {
	yes := true
	return &metav1.OwnerReference{APIVersion: "v1", Kind: string(identity.KindPod), Name: leader.Name, UID: leader.UID, Controller: &yes}
}

// tie has all claims of a group's workers belong to owner and to nothing else of
// ours, or to nobody. Claims that are the leader's already are left so if spare is
// set. It tells whether anything is left to do or to be seen.
//
// A claim that somebody controls is left alone by the StatefulSet controller, so it
// is tied first, and the StatefulSet disarmed once all are: neither writes what the
// other is about to. One that is to be nobody's is let go by the StatefulSet
// controller itself when it sees its StatefulSet disarmed, and until then it would
// be taken again. A leader that leaves does not wait for that; the StatefulSet that he
// leaves behind is disarmed all the same, or it would take the claims again until it goes.
func (p *Plan) tie(set *lwsv1.LeaderWorkerSet, g *Group, leader *corev1.Pod, now time.Time, owner *metav1.OwnerReference, spare bool) bool {
	ties := g.ties(set, leader, owner, spare)
	leaves := leader.DeletionTimestamp != nil
	workers := g.Workers.Member()
	if leaves && owner == nil {
		workers = leftBehindBy(leader, g)
	}
	switch {
	case owner != nil && len(ties) > 0:
		p.tieAll(ties)
	case armed(workers):
		p.do(disarm(workers))
		if leaves {
			p.tieAll(ties)
		}
	case unseen(workers) && (!leaves || len(ties) == 0):
		p.wait(Wait{
			Reason: because(CodeTie, fmt.Sprintf("the statefulset controller is to see first that statefulset %s has no part in the end of volume claims", workers.Name)),
			Until:  now.Add(disarmLook),
		})
		return true
	case len(ties) == 0:
		return false
	default:
		p.tieAll(ties)
	}
	p.wait(Wait{Reason: because(CodeTie, fmt.Sprintf("the volume claims of group %d are tied before its leader may go", g.Index)), Until: now.Add(tieLook)})
	return true
}

func (p *Plan) tieAll(ties []action.Tie) {
	for _, tie := range ties {
		p.do(tie)
	}
}

// ties are the writes that have all claims of the group's workers belong to owner,
// or to nobody.
func (g *Group) ties(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod, owner *metav1.OwnerReference, spare bool) []action.Tie {
	var ties []action.Tie
	ours := g.ours(set, leader)
	for _, volume := range slices.Concat(g.Volumes.Members, g.Volumes.Orphans) {
		if spare && metav1.IsControlledBy(volume, leader) {
			continue
		}
		owners, added := retied(volume, ours, owner)
		if equality.Semantic.DeepEqual(owners, volume.OwnerReferences) {
			continue
		}
		var to *identity.Ref
		why := "it belongs to nothing that ends with a restart"
		if owner != nil {
			ref := identity.OwnerRef(volume.Namespace, *owner)
			why = "it ends with " + ref.String() + " and with nothing before"
			if added {
				to = &ref
			}
		}
		ties = append(ties, tie(volume, owners, to, why))
	}
	return ties
}

// retied are the owners of a claim with owner for all others of ours, and whether
// it is added. Owners that others gave it stay.
func retied(volume *Volume, ours []types.UID, owner *metav1.OwnerReference) ([]metav1.OwnerReference, bool) {
	var kept []metav1.OwnerReference
	added := owner != nil
	for _, have := range volume.OwnerReferences {
		switch {
		case owner != nil && have.UID == owner.UID && orDefault(have.Controller, false):
			kept, added = append(kept, have), false
		case !slices.Contains(ours, have.UID):
			kept = append(kept, have)
		}
	}
	if added {
		kept = append(kept, *owner)
	}
	return kept, added
}

// ours are all that claims of the group's workers may belong to: the set, the
// leader, and the StatefulSets of its workers.
func (g *Group) ours(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) []types.UID {
	uids := []types.UID{set.UID, leader.UID}
	for _, workers := range WorkersOf(g, leader) {
		uids = append(uids, workers.UID)
	}
	return uids
}

// WorkersOf are the worker StatefulSets that a leader controls, on their way out or
// not.
func WorkersOf(g *Group, leader *corev1.Pod) []*appsv1.StatefulSet {
	all := slices.Concat(g.Workers.Members, g.Workers.Ghosts)
	return slices.DeleteFunc(all, func(sts *appsv1.StatefulSet) bool { return leader == nil || !metav1.IsControlledBy(sts, leader) })
}

func tie(volume *Volume, owners []metav1.OwnerReference, to *identity.Ref, why string) action.Tie {
	return action.Tie{
		Object:  identity.RefOf(identity.KindPersistentVolumeClaim, volume),
		Owners:  owners,
		To:      to,
		Because: because(CodeTie, "volume claim "+volume.Name+": "+why),
		Tell: action.Telling{Refused: &action.Event{
			Warning: true, Reason: "FailedTie", Action: "Update",
			Note: "Failed to say what volume claim " + volume.Name + " belongs to",
		}},
	}
}
