package lws_test

import (
	"flag"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/dump"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

// met counts how often the premises of a law were true. A law whose premise was
// never true was not tested.
type met struct {
	mu     sync.Mutex
	counts map[string]int
}

func (m *met) when(premise string, holds bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if holds {
		m.counts[premise]++
	}
	return holds
}

// otherWorlds moves a seed that was given on, or every round would see the same
// worlds.
func otherWorlds(t *testing.T) {
	t.Helper()
	given := flag.Lookup("rapid.seed").Value
	seed, err := strconv.ParseUint(given.String(), 10, 64)
	if err == nil && seed != 0 {
		err = given.Set(strconv.FormatUint(seed+1, 10))
	}
	if err != nil {
		t.Fatalf("seed %q: %v", given, err)
	}
}

// groupNames are those of all groups that a generated set may have.
var groupNames = []string{"w-0", "w-1", "w-2", "w-3", "w-4"}

// checkLaws checks the laws of every decision: about the set, and about each group.
func (w *world) checkLaws() {
	if fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w") == nil {
		return
	}
	if _, _, err := w.observer.SetPlan(ctx, key("w"), w.Now); err != nil {
		return // no cache shows it yet
	}
	for _, d := range w.decideAll() {
		for _, a := range d.plan.Actions {
			w.checkWrite(d, a)
			w.checkPrevious(d, a)
			if foreign, touched := byUID(d.seen.squatters, a.Target().UID); touched || isNew(a) && named(d.seen.squatters, a.Target()) {
				w.t.Fatalf("%s: %s %s is foreign: %v", d, a.Verb(), a.Target(), foreign)
			}
		}
		w.checkPure(d)
	}
}

// verbs are the writes of each kind.
var verbs = map[identity.Kind]string{
	identity.KindLeaderWorkerSet:       "status",
	identity.KindStatefulSet:           "create apply relabel delete",
	identity.KindPod:                   "create annotate delete",
	identity.KindService:               "create apply delete",
	identity.KindControllerRevision:    "create apply relabel delete",
	identity.KindPersistentVolumeClaim: "create tie delete",
}

// checkWrite checks that a write has a reason, stays in the namespace, and names an
// incarnation and its version.
func (w *world) checkWrite(d decided, a action.Action) {
	ref := a.Target()
	if a.Why().Code == "" || a.Why().Sentence == "" || ref.Namespace != fakeapi.Namespace || !strings.Contains(verbs[ref.Kind], a.Verb()) {
		w.t.Fatalf("%s: %s %+v for %+v", d, a.Verb(), ref, a.Why())
	}
	if create, ok := a.(action.Create); ok {
		checkOwned(w.t, d, create)
		return
	}
	if ref.UID == "" || ref.ResourceVersion == "" {
		w.t.Fatalf("%s: %s %+v names no version", d, a.Verb(), ref)
	}
}

// checkPrevious checks that objects of a previous incarnation are only deleted, as garbage or
// with their group, and that nothing is created under their names.
func (w *world) checkPrevious(d decided, a action.Action) {
	deletion, deletes := a.(action.Delete)
	previous, touched := byUID(d.seen.ghosts, a.Target().UID)
	switch {
	case a.Target().Kind == identity.KindPersistentVolumeClaim:
		checkPVC(w.t, d, a)
	case deletes && deletion.Because.Code == lws.CodeRestart:
		checkEnding(w.t, d, deletion)
	case touched && (!deletes || deletion.OwnerGone == nil || deletion.OwnerGone.UID != previous.object.GetOwnerReferences()[0].UID || !identity.IsGarbage(previous.object, d.lives)):
		w.t.Fatalf("%s: %s %s is of a previous incarnation", d, a.Verb(), previous)
	case deletes && deletion.Because.Code == lws.CodeOutdated:
		own, _ := byUID(d.seen.members, a.Target().UID)
		checkOutdated(w.t, d, own.object)
	case isNew(a) && a.Verb() == "create" && named(d.seen.ghosts, a.Target()):
		w.t.Fatalf("%s: %s is created beside a previous object of its name", d, a.Target())
	case isNew(a) && d.group == nil && len(d.set.StatefulSet.Previous) > 0:
		w.t.Fatalf("%s: %s %s beside a previous leader StatefulSet", d, a.Verb(), a.Target())
	}
}

// checkPVC checks that only PVCs of groups beyond the leader StatefulSet's replicas are deleted,
// and none of a previous incarnation is written.
func checkPVC(t *rapid.T, d decided, a action.Action) {
	if _, deletes := a.(action.Delete); deletes && (d.group != nil || groupOfPVC(a.Target().Name) < int(workload.PodsOf(d.set.StatefulSet.Own()))) {
		t.Fatalf("%s: deletes %s", d, a.Target())
	}
	if _, ties := a.(action.Tie); ties && named(d.seen.ghosts, a.Target()) {
		t.Fatalf("%s: ties %s of a previous incarnation", d, a.Target())
	}
}

// isNew reports whether an action creates or adopts an object.
func isNew(a action.Action) bool {
	apply, applies := a.(action.Apply)
	return a.Verb() == "create" || applies && apply.Adopter != nil
}

// checkPure checks that a decision depends on its snapshot alone, in any order of its lists,
// and does not change it.
func (w *world) checkPure(d decided) {
	var snapshot any = *d.set
	decide := func() lws.Plan { return lws.DecideSet(*d.set) }
	if d.group != nil {
		snapshot, decide = *d.group, func() lws.Plan { return lws.DecideGroup(*d.group) }
	}
	before := dump.ForHash(snapshot)
	again := decide()
	if diff := cmp.Diff(d.plan, again); diff != "" {
		w.t.Fatalf("%s (-once +again)\n%s", d.what, diff)
	}
	if after := dump.ForHash(snapshot); after != before {
		w.t.Fatalf("the snapshot of %s was changed:\n%s", d.what, cmp.Diff(before, after))
	}
	if d.group != nil {
		return
	}
	seed := rapid.Int64().Draw(w.t, "order")
	other := of[action.WriteStatus](lws.DecideSet(shuffle(*d.set, rand.New(rand.NewSource(seed)))))
	if diff := cmp.Diff(of[action.WriteStatus](d.plan), other); diff != "" {
		w.t.Fatalf("the order matters (-one +other)\n%s", diff)
	}
}

// checkOwned checks that a new object has its owner as the controller. A PVC has none.
func checkOwned(t *rapid.T, d decided, create action.Create) {
	controller := metav1.GetControllerOf(create.Object)
	isClaim := create.Kind == identity.KindPersistentVolumeClaim
	if create.Owner.UID == "" || create.Object.GetUID() != "" || create.Object.GetResourceVersion() != "" {
		t.Fatalf("%s: create %+v for %+v", d, create.Target(), create.Owner)
	}
	if !isClaim && (controller == nil || controller.UID != create.Owner.UID || controller.Name != create.Owner.Name) {
		t.Fatalf("%s: %s belongs to %+v, made for %+v", d, create.Target(), controller, create.Owner)
	}
}

// checkEnding checks that a restart deletes a failed or terminating leader, or what it owns.
func checkEnding(t *rapid.T, d decided, a action.Delete) {
	leader := d.group.Leader
	if leader == nil {
		leader = d.group.Leaving
	} else if restart.Of(d.group.Set, leader) == nil && len(of[action.Annotate](d.plan)) == 0 {
		t.Fatalf("%s: deletes %s of a group that did not fail", d, a.Object)
	}
	if leader == nil {
		t.Fatalf("%s: deletes %s of no leader", d, a.Object)
	}
	if a.Object.UID == leader.UID {
		return
	}
	for _, all := range [][]claimed{d.seen.members, d.seen.ghosts, d.seen.orphans} {
		part, ok := byUID(all, a.Object.UID)
		if !ok {
			continue
		}
		owner := metav1.GetControllerOf(part.object)
		if owner == nil || owner.UID == leader.UID {
			return
		}
		if sts, ok := byUID(all, owner.UID); ok && metav1.IsControlledBy(sts.object, leader) {
			return
		}
		if sts := d.group.Workers.Own(); sts != nil && sts.UID == owner.UID {
			return
		}
	}
	t.Fatalf("%s: deletes %s, which does not hang from %s", d, a.Object, leader.Name)
}

// checkOutdated checks that a rollout deletes only a leader that its StatefulSet is to replace.
func checkOutdated(t *rapid.T, d decided, leader metav1.Object) {
	sts := d.set.StatefulSet.Own()
	if leader == nil || sts == nil || leader.GetLabels()[lwsv1.RevisionKey] == sts.Labels[lwsv1.RevisionKey] {
		t.Fatalf("%s: deletes %v, which is not outdated", d, leader)
	}
	if _, ordinal := identity.ParentAndOrdinal(leader.GetName()); int32(ordinal) < partition(sts) {
		t.Fatalf("%s: deletes leader %d below partition %d", d, ordinal, partition(sts))
	}
}

func shuffle(w lws.SetSnapshot, r *rand.Rand) lws.SetSnapshot {
	w.Leaders = shuffledClaim(w.Leaders, r)
	w.Revisions = shuffledClaim(w.Revisions, r)
	groups := append([]lws.Group(nil), w.Groups...)
	for i := range groups {
		groups[i].Pods = shuffledClaim(groups[i].Pods, r)
	}
	w.Groups = groups
	return w
}

func shuffledClaim[T metav1.Object](claim identity.Claim[T], r *rand.Rand) identity.Claim[T] {
	for _, class := range []*[]T{&claim.Owned, &claim.Previous, &claim.Orphans, &claim.Foreign} {
		other := append([]T(nil), *class...)
		r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		*class = other
	}
	return claim
}

// claimed is what one snapshot says of an object.
type claimed struct {
	identity.Ref
	object metav1.Object
}

// sorted is everything that a snapshot points to, by class.
type sorted struct{ members, ghosts, orphans, squatters []claimed }

func sortInto[T metav1.Object](s *sorted, kind identity.Kind, claim identity.Claim[T]) {
	add := func(to *[]claimed, objects []T) {
		for _, object := range objects {
			*to = append(*to, claimed{identity.RefOf(kind, object), object})
		}
	}
	add(&s.members, claim.Owned)
	add(&s.ghosts, claim.Previous)
	add(&s.orphans, claim.Orphans)
	add(&s.squatters, claim.Foreign)
}

func (s *sorted) group(g lws.Group) {
	sortInto(s, identity.KindStatefulSet, g.Workers)
	sortInto(s, identity.KindPod, g.Pods)
	sortInto(s, identity.KindService, g.Service)
	sortInto(s, identity.KindPersistentVolumeClaim, g.Volumes)
}

func sortSet(w lws.SetSnapshot) *sorted {
	s := &sorted{}
	sortInto(s, identity.KindStatefulSet, w.StatefulSet)
	sortInto(s, identity.KindPod, w.Leaders)
	sortInto(s, identity.KindService, w.Service)
	sortInto(s, identity.KindControllerRevision, w.Revisions)
	sortInto(s, identity.KindPersistentVolumeClaim, w.LeaderVolumes)
	for _, g := range w.Groups {
		s.group(g)
	}
	return s
}

func sortGroup(w lws.GroupSnapshot) *sorted {
	s := &sorted{}
	s.group(w.Group)
	sortInto(s, identity.KindControllerRevision, w.Revisions)
	return s
}

func byUID(all []claimed, uid types.UID) (claimed, bool) {
	for _, c := range all {
		if c.UID == uid {
			return c, true
		}
	}
	return claimed{}, false
}

func named(all []claimed, ref identity.Ref) bool {
	for _, c := range all {
		if c.Kind == ref.Kind && c.Name == ref.Name {
			return true
		}
	}
	return false
}

// decided is one decision and what it was made from.
type decided struct {
	what string
	plan lws.Plan
	seen *sorted
	set  *lws.SetSnapshot
	// group is nil for a decision about the set.
	group *lws.GroupSnapshot
	lives identity.Lives
}

func (d decided) String() string { return fmt.Sprintf("%s: %v", d.what, spelled(d.plan)) }

// decideAll decides about the set and about every group it could have.
func (c *cluster) decideAll() []decided {
	var groups []decided
	for _, name := range groupNames {
		group, plan := c.groupPlan(name)
		groups = append(groups, decided{what: "group " + name, plan: plan, seen: sortGroup(group), group: &group, lives: group.Lives})
	}
	set := c.set("w")
	for i := range groups {
		groups[i].set = &set
	}
	return append([]decided{{what: "set", plan: lws.DecideSet(set), seen: sortSet(set), set: &set, lives: set.Lives}}, groups...)
}
