package lws

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Claims that are to go with a group that is scaled away are tied to its last leader,
// and nobody is the last one before the StatefulSet was lowered: until then the write may
// be refused, or the user may want the group after all, and a restart would take the
// claims along. So the write that lowers the StatefulSet notes who leads, or led last
// where a restart or a drain is on, and the claims are tied to those after it, whether
// they are still there or not. Whoever takes over finds the note. Where nobody is known,
// a leader is awaited, for a while.

const (
	// leaderAwaited is how long a scaling down waits for leaders that claims can go
	// with. What they need may be what it is to free.
	leaderAwaited = time.Minute
	// notedAtMost bounds how many leaders a StatefulSet notes: annotations have 256 KiB.
	notedAtMost = 1000
)

// Parting is a group whose place is beyond those wanted.
type Parting struct {
	Group
	// Last is who leads it, or led it last, or nil where nobody knows. One that is gone is known by
	// no more than its name and UID.
	Last *corev1.Pod
}

// Leaderless are the groups that nobody leads and that are scaled away, or about to be,
// where their claims are to go, by rising index. There are none at rest.
func Leaderless(set *lwsv1.LeaderWorkerSet, sts *appsv1.StatefulSet, leaders identity.Claim[*corev1.Pod]) []Parting {
	if !HasVolumes(set) || keepsVolumesScaled(set) {
		return nil
	}
	last := noted(sts, set)
	for index := Replicas(set); index < reached(sts, set); index++ {
		if _, known := last[int(index)]; !known {
			last[int(index)] = nil
		}
	}
	for _, pod := range leaders.Ghosts {
		if _, index := identity.ParentAndOrdinal(pod.Name); pod.DeletionTimestamp != nil && metav1.IsControlledBy(pod, sts) {
			last[index] = pod
		}
	}
	for _, pod := range leaders.Members {
		_, index := identity.ParentAndOrdinal(pod.Name)
		delete(last, index)
	}
	var found []Parting
	for _, index := range slices.Sorted(maps.Keys(last)) {
		if int32(index) >= Replicas(set) {
			found = append(found, Parting{Group: Group{Index: index, LeaderName: identity.LeaderName(set.Name, index)}, Last: last[index]})
		}
	}
	return found
}

// reached is the end of the ordinals that groups of a StatefulSet may have had: twice as
// many as were wanted or are there, for surge, and no more than it has places. Who scales
// one by hand beyond that has made none of them yet, and they are not thought of one by one.
func reached(sts *appsv1.StatefulSet, set *lwsv1.LeaderWorkerSet) int32 {
	had := max(appliedReplicas(sts, Replicas(set)), sts.Status.Replicas)
	return min(PodsOf(sts), 2*min(had, mostPods))
}

// Awaited tells whether claims of the group are there that nobody is known to be the
// last leader of.
func (g *Parting) Awaited() bool { return g.Last == nil && g.hasClaims() }

func (g *Parting) hasClaims() bool { return len(g.Volumes.Members)+len(g.Volumes.Orphans) > 0 }

// part sees to the claims of a group that is scaled away, or about to be.
func (d *setDecision) part(sts *appsv1.StatefulSet, g *Parting) {
	if g.Last == nil {
		if g.hasClaims() && int32(g.Index) < PodsOf(sts) {
			d.awaitLeader(g)
		}
		return
	}
	ties := g.ties(d.live, g.Last, podOwner(g.Last), false)
	if len(ties) == 0 {
		return
	}
	d.parting = append(d.parting, g)
	if int32(g.Index) >= PodsOf(sts) {
		d.tieToLast(sts, g, ties)
	}
}

// tieToLast ties the claims of a group to who led it last, there or gone. That the
// StatefulSet still wants no more than was judged makes that leader the last one.
func (d *setDecision) tieToLast(sts *appsv1.StatefulSet, g *Parting, ties []action.Tie) {
	lowered := action.Standing{
		Kind: identity.KindStatefulSet, Namespace: sts.Namespace, Name: sts.Name,
		Labels:    map[string]string{lwsv1.SetNameLabelKey: d.Set.Name},
		Specified: map[types.UID]int64{sts.UID: sts.Generation},
	}
	for _, tie := range ties {
		tie.To, tie.Relies = nil, []action.Standing{lowered}
		d.plan.do(tie)
	}
	d.plan.wait(Wait{
		Reason: because(CodeTie, fmt.Sprintf("the volume claims of group %d, which was scaled away, are to go with its last leader", g.Index)),
		Until:  d.Now.Add(tieLook), Followup: true,
	})
}

// boundParting has no more groups scaled away at once than their StatefulSet can note.
func (d *setDecision) boundParting() {
	slices.SortFunc(d.parting, func(a, b *Parting) int { return a.Index - b.Index })
	if over := len(d.parting) - notedAtMost; over > 0 {
		d.parting = d.parting[over:]
		d.course.replicas = max(d.course.replicas, int32(d.parting[0].Index))
	}
}

// awaitLeader holds the scaling down of a group back until it has a leader that its
// claims can go with, and gives that up after a while.
func (d *setDecision) awaitLeader(g *Parting) {
	due := d.LeaderlessSince.Add(leaderAwaited)
	if d.Now.Before(due) {
		d.untied = true
		d.plan.wait(Wait{
			Reason: because(CodeTie, fmt.Sprintf("group %d is scaled away once leader %s is there for its volume claims to go with, or at %s without it",
				g.Index, g.LeaderName, due.UTC().Format(time.RFC3339))),
			Until: due,
		})
		return
	}
	note := fmt.Sprintf("The volume claims of group %d stay behind: it is scaled away, and no leader %s was made that they could go with; delete them if nobody needs them",
		g.Index, g.LeaderName)
	d.plan.wait(Wait{
		Reason: because(CodeTie, note),
		Tell:   &action.Event{Warning: true, Reason: "FailedTie", Action: "Update", Note: note},
	})
}

// noteLast puts on a StatefulSet who led the groups last whose claims are still to be
// tied: one write says that they are scaled away and to whom their claims go.
func (d *setDecision) noteLast(desired *appsv1.StatefulSet) {
	delete(desired.Annotations, PartingAnnotationKey) // the user's own annotations are on it
	notes := make([]string, 0, len(d.parting))
	for _, g := range d.parting {
		notes = append(notes, fmt.Sprintf("%d=%s", g.Index, g.Last.UID))
	}
	if len(notes) > 0 {
		desired.Annotations[PartingAnnotationKey] = strings.Join(notes, ",")
	}
}

// noted are the last leaders that a StatefulSet tells of, by index.
func noted(sts *appsv1.StatefulSet, set *lwsv1.LeaderWorkerSet) map[int]*corev1.Pod {
	last := map[int]*corev1.Pod{}
	for note := range strings.SplitSeq(sts.Annotations[PartingAnnotationKey], ",") {
		number, uid, _ := strings.Cut(note, "=")
		if index, err := strconv.Atoi(number); err == nil && index >= 0 && uid != "" {
			last[index] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: identity.LeaderName(set.Name, index), UID: types.UID(uid)}}
		}
	}
	return last
}
