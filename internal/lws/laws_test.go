package lws_test

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/dump"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsgroup "lockstep.dev/lockstep/internal/lws/group"
	"lockstep.dev/lockstep/internal/lws/restart"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// decided is one decision and what it was made from.
type decided struct {
	t    fatal
	what string
	plan lws.Plan
	seen seen
	set  *lws.SetSnapshot
	// group is nil for a decision about the set.
	group *lws.GroupSnapshot
	lives identity.Lives
}

func (d decided) String() string { return fmt.Sprintf("%s: %v", d.what, spelled(d.plan)) }

// seen is everything that a snapshot points to, by class.
type seen struct{ owned, previous, orphans, foreign []classified }

type classified struct {
	identity.Ref
	object metav1.Object
}

func see[T metav1.Object](s *seen, kind identity.Kind, claim identity.Claim[T]) {
	for to, objects := range map[*[]classified][]T{
		&s.owned: claim.Owned, &s.previous: claim.Previous, &s.orphans: claim.Orphans, &s.foreign: claim.Foreign,
	} {
		for _, object := range objects {
			*to = append(*to, classified{identity.RefOf(kind, object), object})
		}
	}
}

func (s *seen) group(g lws.Group) {
	see(s, identity.KindStatefulSet, g.Workers)
	see(s, identity.KindPod, g.Pods)
	see(s, identity.KindService, g.Service)
	see(s, identity.KindPersistentVolumeClaim, g.Volumes)
}

func (s *seen) set(w lws.SetSnapshot) {
	see(s, identity.KindStatefulSet, w.StatefulSet)
	see(s, identity.KindPod, w.Leaders)
	see(s, identity.KindService, w.Service)
	see(s, identity.KindPersistentVolumeClaim, w.LeaderVolumes)
	for _, g := range w.Groups {
		s.group(g)
	}
}

// byUID returns the object with a UID, or nil.
func byUID(all []classified, uid types.UID) metav1.Object {
	i := slices.IndexFunc(all, func(c classified) bool { return c.UID == uid })
	if i < 0 {
		return nil
	}
	return all[i].object
}

func named(all []classified, ref identity.Ref) bool {
	return slices.ContainsFunc(all, func(c classified) bool { return c.Kind == ref.Kind && c.Name == ref.Name })
}

// decideAll decides about the set and about every group it could have.
func (c *cluster) decideAll() []decided {
	set := c.set()
	about := decided{t: c.t, what: "set", plan: lwsset.Decide(set), set: &set, lives: set.Lives}
	about.seen.set(set)
	see(&about.seen, identity.KindControllerRevision, set.Revisions)
	all := []decided{about}
	for _, name := range groupNames {
		group, plan := c.groupPlan(name)
		about := decided{t: c.t, what: "group " + name, plan: plan, set: &set, group: &group, lives: group.Lives}
		about.seen.group(group.Group)
		see(&about.seen, identity.KindControllerRevision, group.Revisions)
		all = append(all, about)
	}
	return all
}

// checkLaws checks the laws of every decision: about the set, and about each group.
func (w *world) checkLaws() {
	if fakeapi.Find[Set](w.Server, "w") == nil {
		return
	}
	if _, _, err := setPlan(w.observer, w.Now); err != nil {
		return // no cache shows it yet
	}
	for _, d := range w.decideAll() {
		for _, a := range d.plan.Actions {
			d.checkWrite(a)
			d.checkPrevious(a)
			d.checkTarget(a)
			d.checkStatus(a)
		}
		w.checkPure(d)
		w.checkStanding(d)
		w.checkWaits(d)
	}
}

// checkWaits: a wait ends later than now. One that does not would make the operator read again and again while nothing
// changes.
func (w *world) checkWaits(d decided) {
	w.met.waits(d.plan)
	for _, wait := range d.plan.Waits {
		if !wait.Until.IsZero() && !wait.Until.After(w.Now) {
			d.t.Fatalf("%s waits until %s, and it is %s: %+v", d.what, wait.Until, w.Now, wait)
		}
	}
}

// verbs are the writes of each kind.
var verbs = map[identity.Kind]string{
	identity.KindLeaderWorkerSet:       "status",
	identity.KindStatefulSet:           "create apply annotate relabel delete",
	identity.KindPod:                   "annotate set-finalizers remove-gate delete",
	identity.KindService:               "create apply delete",
	identity.KindControllerRevision:    "create apply relabel delete",
	identity.KindPersistentVolumeClaim: "set-owner delete",
	identity.KindPodDisruptionBudget:   "create apply delete",
}

// checkWrite checks that a write has a reason, stays in the namespace, and names an incarnation
// and its version. A new object has its owner as the controller; a PVC has none.
func (d decided) checkWrite(a action.Action) {
	ref := a.Target()
	if a.About().Because.Code == "" || a.About().Because.Sentence == "" || ref.Namespace != fakeapi.Namespace || !strings.Contains(verbs[ref.Kind], a.About().Verb) {
		d.t.Fatalf("%s: %s %+v for %+v", d, a.About().Verb, ref, a.About().Because)
	}
	create, creates := a.(action.Create)
	if !creates && (ref.UID == "" || ref.ResourceVersion == "") {
		d.t.Fatalf("%s: %s %+v names no version", d, a.About().Verb, ref)
	}
	if apply, applies := a.(action.Apply); applies && !d.mayApply(apply) {
		d.t.Fatalf("%s: apply %+v by %q, for %v", d, ref, apply.FieldOwner, apply.Adopter)
	}
	if !creates {
		return
	}
	controller := metav1.GetControllerOf(create.Object)
	if create.Owner.UID == "" || create.Object.GetUID() != "" || create.Object.GetResourceVersion() != "" ||
		create.Kind != identity.KindPersistentVolumeClaim && (controller == nil || controller.UID != create.Owner.UID || controller.Name != create.Owner.Name) {
		d.t.Fatalf("%s: %s belongs to %+v, created for %+v", d, ref, controller, create.Owner)
	}
}

// checkStatus checks that no status is written for the conditions alone that tools judge a set by.
func (d decided) checkStatus(a action.Action) {
	write, is := a.(action.WriteStatus)
	if !is || condition(d.set.Set.Status, ready).Type == "" {
		return
	}
	if before, after := untooled(d.set.Set.Status), untooled(write.Status.(Set).Status); equality.Semantic.DeepEqual(before, after) {
		d.t.Fatalf("%s: a status is written for %+v, with no other change", d, write.Status.(Set).Status.Conditions)
	}
}

// untooled is a status without the conditions for tools.
func untooled(status lwsv1.LeaderWorkerSetStatus) lwsv1.LeaderWorkerSetStatus {
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool { return slices.Contains(forTools, c.Type) })
	return status
}

// mayApply reports whether an apply onto the leader StatefulSet has the field owner of every
// version, and whether an orphan is adopted by the set or the leader that is read live.
func (d decided) mayApply(a action.Apply) bool {
	leaders := a.Onto.Kind == identity.KindStatefulSet && a.Onto.Name == d.set.Set.Name && a.Because.Code != lws.CodeNudge
	if leaders && a.FieldOwner != "lws" {
		return false
	}
	owner := metav1.GetControllerOf(a.Object)
	if owner == nil || byUID(d.seen.orphans, a.Onto.UID) == nil {
		return true
	}
	return a.Adopter != nil && a.Adopter.UID == owner.UID
}

// checkPrevious checks that objects of a previous incarnation are only deleted, as garbage or
// with their group, or as its group is stopped or let go, and that nothing is created under their names. Foreign ones are not written.
func (d decided) checkPrevious(a action.Action) {
	ref := a.Target()
	deletion, deletes := a.(action.Delete)
	if deletes && (deletion.Because.Code == lws.CodeRestart || deletion.Because.Code == lws.CodeParallel) {
		return
	}
	if code := a.About().Because.Code; code == lws.CodeBudgetExceeded || code == lws.CodeReleased {
		return
	}
	if object := byUID(d.seen.previous, ref.UID); object != nil && (!deletes || deletion.OwnerGone == nil ||
		deletion.OwnerGone.UID != object.GetOwnerReferences()[0].UID || !identity.IsGarbage(object, d.lives)) {
		d.t.Fatalf("%s: %s %s is of a previous incarnation", d, a.About().Verb, ref)
	}
	apply, applies := a.(action.Apply)
	isNew := a.About().Verb == "create" || applies && apply.Adopter != nil
	switch {
	case byUID(d.seen.foreign, ref.UID) != nil || isNew && named(d.seen.foreign, ref):
		d.t.Fatalf("%s: %s %s is foreign", d, a.About().Verb, ref)
	case a.About().Verb == "create" && named(d.seen.previous, ref):
		d.t.Fatalf("%s: %s is created beside a previous object of its name", d, ref)
	case isNew && d.group == nil && len(d.set.StatefulSet.Previous) > 0:
		d.t.Fatalf("%s: %s %s beside a previous leader StatefulSet", d, a.About().Verb, ref)
	}
}

// checkTarget checks what a write may be made to, by its reason.
func (d decided) checkTarget(a action.Action) {
	ref := a.Target()
	_, deletes := a.(action.Delete)
	switch {
	case deletes && a.About().Because.Code == lws.CodeRestart:
		d.checkRestart(ref)
	case deletes && a.About().Because.Code == lws.CodeParallel:
		d.checkParallel(ref)
	case deletes && a.About().Because.Code == lws.CodeOutdated:
		d.checkOutdated(ref)
	case deletes && ref.Kind == identity.KindPersistentVolumeClaim:
		if d.group != nil || groupOfPVC(ref.Name) < int(workload.PodsOf(d.set.StatefulSet.Own())) {
			d.t.Fatalf("%s: deletes %s of a group that is kept", d, ref)
		}
	}
}

// checkRestart checks that a restart deletes a failed or terminating leader, or what it owns.
func (d decided) checkRestart(ref identity.Ref) {
	leader := d.group.Leader
	if leader == nil {
		leader = d.group.Leaving
	} else if restart.Of(d.group.Set, leader) == nil && len(of[action.Annotate](d.plan)) == 0 {
		d.t.Fatalf("%s: deletes %s of a group that did not fail", d, ref)
	}
	if leader == nil {
		d.t.Fatalf("%s: deletes %s of no leader", d, ref)
	}
	all := slices.Concat(d.seen.owned, d.seen.previous, d.seen.orphans)
	object := byUID(all, ref.UID)
	if ref.UID == leader.UID || object != nil && metav1.GetControllerOf(object) == nil || object != nil && metav1.IsControlledBy(object, leader) {
		return
	}
	if object != nil {
		owner := metav1.GetControllerOf(object)
		if sts := byUID(all, owner.UID); sts != nil && (metav1.IsControlledBy(sts, leader) || sts == d.group.Workers.Own()) {
			return
		}
	}
	d.t.Fatalf("%s: deletes %s, which does not belong to %s", d, ref, leader.Name)
}

// checkOutdated checks that a rollout deletes only a leader that its StatefulSet is to replace.
func (d decided) checkOutdated(ref identity.Ref) {
	leader, sts := byUID(d.seen.owned, ref.UID), d.set.StatefulSet.Own()
	if leader == nil || sts == nil || leader.GetLabels()[lwsv1.RevisionKey] == sts.Labels[lwsv1.RevisionKey] {
		d.t.Fatalf("%s: deletes %v, which is not outdated", d, leader)
	}
	if _, ordinal := identity.ParentAndOrdinal(leader.GetName()); int32(ordinal) < partition(sts) {
		d.t.Fatalf("%s: deletes leader %d below partition %d", d, ordinal, partition(sts))
	}
}

// checkPure checks that a decision depends on its snapshot alone, in any order of its lists,
// and does not change it.
func (w *world) checkPure(d decided) {
	var snapshot any = *d.set
	decide := func() lws.Plan { return lwsset.Decide(*d.set) }
	if d.group != nil {
		snapshot, decide = *d.group, func() lws.Plan { return lwsgroup.Decide(*d.group) }
	}
	before := dump.ForHash(snapshot)
	again := decide()
	if !reflect.DeepEqual(d.plan, again) { // a diff takes far longer
		expect.Equalf(w.t, d.plan, again, "%s", d.what)
	}
	if after := dump.ForHash(snapshot); after != before {
		w.t.Fatalf("the snapshot of %s was changed:\n%s", d.what, cmp.Diff(before, after))
	}
	if d.group != nil {
		return
	}
	r := rand.New(rand.NewSource(rapid.Int64().Draw(w.t, "order")))
	other := *d.set
	other.Leaders, other.Revisions, other.Groups = shuffled(other.Leaders, r), shuffled(other.Revisions, r), slices.Clone(other.Groups)
	for i := range other.Groups {
		other.Groups[i].Pods = shuffled(other.Groups[i].Pods, r)
	}
	expect.Equalf(w.t, statusWrites(d.plan), statusWrites(lwsset.Decide(other)), "the order matters")
}

func shuffled[T metav1.Object](claim identity.Claim[T], r *rand.Rand) identity.Claim[T] {
	for _, class := range []*[]T{&claim.Owned, &claim.Previous, &claim.Orphans, &claim.Foreign} {
		*class = slices.Clone(*class)
		r.Shuffle(len(*class), func(i, j int) { (*class)[i], (*class)[j] = (*class)[j], (*class)[i] })
	}
	return claim
}
