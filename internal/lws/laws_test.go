package lws_test

import (
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/dump"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

// TestDecisions checks the laws of every decision on the same worlds.
func TestDecisions(t *testing.T) {
	laws := []func(*rapid.T, *cluster, []decided, *met){
		neverTouchesGhosts, nothingNewBesideAGhost, neverTouchesSquatters, everyWriteNamesAnIncarnation, writesStayInTheNamespace,
		deletesOnlyGarbageOrOwn, sameInSameOut, coreDoesNotMutate, conditionsAreDeterministic,
		forgedObjectsChangeNothing, // last: it adds an object
	}
	check(t, func(t *rapid.T, c *cluster, m *met) {
		all := c.decideAll()
		for _, law := range laws {
			law(t, c, all, m)
		}
	},
		"a ghost", "a ghost and something to do", "garbage deleted", "a group's ghosts end with it",
		"a former leader statefulset", "former leaders on the move", "former leaders that linger",
		"a group with former workers", "something made for a set with a ghost",
		"a squatter", "a squatter and something to do", "create", "apply", "delete", "status", "a write",
		"garbage", "history", "a group that ends", "a plan", "a plan for a set", "a plan for a group",
		"a forged Pod", "a forged StatefulSet", "a forged Service", "a forged ControllerRevision",
		"a status in another order", "two ghosts", "two squatters")
}

// TestSettledIsFixpoint: a settled cluster asks for nothing.
func TestSettledIsFixpoint(t *testing.T) {
	check(t, settledIsFixpoint, "a set that becomes available", "a set that cannot", "a set that is held")
}

func neverTouchesGhosts(t *rapid.T, c *cluster, all []decided, m *met) {
	for _, d := range all {
		m.when("a ghost", len(d.seen.ghosts) > 0)
		m.when("a ghost and something to do", len(d.seen.ghosts) > 0 && len(d.plan.Actions) > 1)
		for _, a := range d.plan.Actions {
			ghost, touched := byUID(d.seen.ghosts, a.Target().UID)
			if !touched {
				continue
			}
			deletion, ok := a.(action.Delete)
			if ok && deletion.Because.Code == lws.CodeRestart {
				checkEnding(t, d, deletion)
				m.when("a group's ghosts end with it", true)
				continue
			}
			if !ok || deletion.OwnerGone == nil || !identity.IsGarbage(ghost.object, d.lives) {
				t.Fatalf("%s: %s %s is a ghost", d, a.Verb(), ghost)
			}
			m.when("garbage deleted", true)
		}
	}
}

// isNew tells whether an action makes or takes over something.
func isNew(a action.Action) bool {
	switch a := a.(type) {
	case action.Create:
		return true
	case action.Apply:
		return a.Adopter != nil
	}
	return false
}

func nothingNewBesideAGhost(t *rapid.T, c *cluster, all []decided, m *met) {
	for _, d := range all {
		m.when("a ghost", len(d.seen.ghosts) > 0)
		barred := barred(d, m)
		for _, a := range d.plan.Actions {
			if _, create := a.(action.Create); create && named(d.seen.ghosts, a.Target()) {
				t.Fatalf("%s: %s is made beside a ghost of its name", d, a.Target())
			}
			if isNew(a) && barred != "" {
				t.Fatalf("%s: %s %s beside %s", d, a.Verb(), a.Target(), barred)
			}
			m.when("something made for a set with a ghost", isNew(a) && len(d.seen.ghosts) > 0)
		}
	}
}

// barred says why nothing new may be made at all, or is empty.
func barred(d decided, m *met) string {
	if d.group != nil {
		return barredGroup(d.group, m)
	}
	w := d.set
	if m.when("a former leader statefulset", len(w.StatefulSet.Ghosts) > 0) {
		return "a former leader statefulset"
	}
	if w.StatefulSet.Member() != nil {
		return ""
	}
	moved := w.Vigil.Moved
	var ghosts int
	for _, pod := range w.Leaders.Ghosts {
		if owner := metav1.GetControllerOf(pod); owner != nil && w.StatefulSet.Orphan() != nil && owner.UID == w.StatefulSet.Orphan().UID {
			continue
		}
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); int32(ordinal) < workload.Replicas(w.Set) {
			ghosts++
			if seen := w.Vigil.Seen[pod.UID]; seen.After(moved) {
				moved = seen
			}
		}
	}
	lingers := !w.Now.Before(moved.Add(3*time.Second)) && ghosts < int(workload.Replicas(w.Set))
	if m.when("former leaders that linger", ghosts > 0 && lingers) || !m.when("former leaders on the move", ghosts > 0) {
		return ""
	}
	return "former leaders"
}

func barredGroup(w *lws.GroupSnapshot, m *met) string {
	if w.Workers.Member() != nil || w.Leader == nil {
		return ""
	}
	ghosts := len(w.Workers.Ghosts)
	for _, pod := range w.Pods.Ghosts {
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); ordinal > 0 && int32(ordinal) < workload.SizeOf(w.Leader, w.Set) {
			ghosts++
		}
	}
	if m.when("a group with former workers", ghosts > 0) {
		return "former workers"
	}
	return ""
}

func neverTouchesSquatters(t *rapid.T, c *cluster, all []decided, m *met) {
	for _, d := range all {
		m.when("a squatter", len(d.seen.squatters) > 0)
		m.when("a squatter and something to do", len(d.seen.squatters) > 0 && len(d.plan.Actions) > 1)
		for _, a := range d.plan.Actions {
			squatter, touched := byUID(d.seen.squatters, a.Target().UID)
			if touched || (isNew(a) && named(d.seen.squatters, a.Target())) {
				t.Fatalf("%s: %s %s is a squatter %v", d, a.Verb(), a.Target(), squatter)
			}
		}
	}
}

func everyWriteNamesAnIncarnation(t *rapid.T, c *cluster, all []decided, m *met) {
	for _, d := range all {
		for _, a := range d.plan.Actions {
			m.when(a.Verb(), true)
			if a.Why().Code == "" || a.Why().Sentence == "" {
				t.Fatalf("%s: %s %s has no reason", d, a.Verb(), a.Target())
			}
			if create, ok := a.(action.Create); ok {
				checkOwned(t, d, create)
				continue
			}
			ref := a.Target()
			standing := c.Objects[fakeapi.Name{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}]
			if standing == nil || ref != identity.RefOf(ref.Kind, standing) || ref.UID == "" || ref.ResourceVersion == "" {
				t.Fatalf("%s: %s %+v is not what was looked at", d, a.Verb(), ref)
			}
		}
	}
}

// checkOwned checks that what is made is told apart from what stands, and says
// itself that it belongs to its owner. A claim belongs to nobody.
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

func writesStayInTheNamespace(t *rapid.T, c *cluster, all []decided, m *met) {
	verbs := map[identity.Kind]string{
		identity.KindLeaderWorkerSet:       "status",
		identity.KindStatefulSet:           "create apply relabel delete",
		identity.KindPod:                   "create annotate delete",
		identity.KindService:               "create apply delete",
		identity.KindControllerRevision:    "create apply relabel delete",
		identity.KindPersistentVolumeClaim: "create tie",
	}
	for _, d := range all {
		for _, a := range d.plan.Actions {
			m.when("a write", true)
			ref := a.Target()
			if ref.Namespace != fakeapi.Namespace || !strings.Contains(verbs[ref.Kind], a.Verb()) {
				t.Fatalf("%s: %s %+v", d, a.Verb(), ref)
			}
			if create, ok := a.(action.Create); ok && create.Owner.Namespace != ref.Namespace {
				t.Fatalf("%s: the owner of %s is in %q", d, ref, create.Owner.Namespace)
			}
		}
	}
}

func deletesOnlyGarbageOrOwn(t *rapid.T, c *cluster, all []decided, m *met) {
	for _, d := range all {
		for _, a := range of[action.Delete](d.plan) {
			if a.Because.Code == lws.CodeRestart {
				checkEnding(t, d, a)
				m.when("a group that ends", true)
				continue
			}
			if ghost, ok := byUID(d.seen.ghosts, a.Object.UID); ok {
				if a.OwnerGone == nil || a.OwnerGone.UID != ghost.object.GetOwnerReferences()[0].UID {
					t.Fatalf("%s: deletes %s without a look at its owner", d, ghost)
				}
				m.when("garbage", true)
				continue
			}
			own, ok := byUID(d.seen.members, a.Object.UID)
			if a.Object.Kind == identity.KindPod && a.Because.Code == lws.CodeOutdated {
				checkOutdated(t, d, own.object)
				continue
			}
			if !ok || own.Kind != identity.KindControllerRevision {
				t.Fatalf("%s: deletes %s", d, a.Object)
			}
			m.when("history", true)
			key := own.object.GetLabels()[lwsv1.RevisionKey]
			for _, g := range d.set.Groups {
				if g.Leader.Labels[lwsv1.RevisionKey] == key && int32(g.Index) < workload.Replicas(d.set.Set) {
					t.Fatalf("%s: deletes %s, which group %d runs", d, own, g.Index)
				}
			}
		}
	}
}

// checkEnding checks that what is deleted for the sake of a restart is a leader
// that the status says failed, or that hangs from it or from one on its way out.
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
		if sts := d.group.Workers.Member(); sts != nil && sts.UID == owner.UID {
			return
		}
	}
	t.Fatalf("%s: deletes %s, which does not hang from %s", d, a.Object, leader.Name)
}

// checkOutdated checks that a leader deleted for the sake of a rollout is one that
// its StatefulSet is to replace.
func checkOutdated(t *rapid.T, d decided, leader metav1.Object) {
	sts := d.set.StatefulSet.Member()
	if leader == nil || sts == nil || leader.GetLabels()[lwsv1.RevisionKey] == sts.Labels[lwsv1.RevisionKey] {
		t.Fatalf("%s: deletes %v, which is not outdated", d, leader)
	}
	if _, ordinal := identity.ParentAndOrdinal(leader.GetName()); int32(ordinal) < partition(sts) {
		t.Fatalf("%s: deletes leader %d below partition %d", d, ordinal, partition(sts))
	}
}

// settledIsFixpoint: everybody acts in turn for as long as anybody has something
// to do. It comes to an end, and then the status says what is.
func settledIsFixpoint(t *rapid.T, c *cluster, m *met) {
	hindered := strangePods(c) || strangeVolumes(c)
	still := 0
	for round := 0; still < 20; round++ {
		if round > 300 {
			t.Fatalf("still at it after %d rounds: %v", round, c.decideAll())
		}
		before := c.version()
		for _, d := range c.decideAll() {
			for _, a := range d.plan.Actions {
				c.try(a) // another decision of the round may have been first
			}
		}
		c.others()
		c.pass(5 * time.Second)
		still++
		if !reflect.DeepEqual(before, c.version()) {
			still = 0
		}
	}
	for _, d := range c.decideAll() {
		if len(d.plan.Actions) > 0 {
			t.Fatalf("settled, yet %s", d)
		}
	}
	status := c.status()
	up := condition(status, available).Status == metav1.ConditionTrue
	m.when("a set that becomes available", up && status.ReadyReplicas > 0)
	m.when("a set that cannot", !up)
	held := m.when("a set that is held", !up && lws.Paused(find[*lwsv1.LeaderWorkerSet](c, "w")))
	checkWhole(t, c, up, hindered || held || strangePods(c) || stranded(c))
}

// others lets everybody but the operator act once.
func (c *cluster) others() {
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
		c.Sync(sts)
	}
	for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
		c.Run(pod)
	}
	c.collect()
}

func (c *cluster) collect() {
	c.Protect()
	for _, object := range fakeapi.All[client.Object](c.Objects) {
		if standing := c.Objects[fakeapi.NameOf(object)]; standing != nil {
			c.Collect(standing)
		}
	}
}

// checkWhole checks that a set is available exactly when nothing is in its way,
// and that it is then what its spec says. A set is hindered when a pod of others
// stood in the way of its workers: their StatefulSet backs off, and not for us.
// And when somebody took the revision from a part of a group: what stands is
// never relabelled, nor made whole of a revision that is gone.
func checkWhole(t *rapid.T, c *cluster, up, hindered bool) {
	w := c.set("w")
	seen := sortSet(w)
	if !up && len(seen.ghosts)+len(seen.squatters) == 0 && !hindered {
		t.Fatalf("nothing is in the way, yet %v; leaders %v", brief(c.status()), len(w.Groups))
	}
	if !up {
		return
	}
	if len(w.Leaders.Members) != int(workload.Replicas(w.Set)) || c.status().ReadyReplicas != workload.Replicas(w.Set) {
		t.Fatalf("available with %d leaders, %d ready, of %d", len(w.Leaders.Members), c.status().ReadyReplicas, workload.Replicas(w.Set))
	}
	if condition(c.status(), progressing).Status == metav1.ConditionTrue {
		t.Fatalf("available and progressing: %v", brief(c.status()))
	}
}

// strangePods tells whether a pod that is not the group's own bears the name of
// one of its workers: a standing worker StatefulSet waits for it.
func strangePods(c *cluster) bool {
	for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
		parent, _ := identity.ParentAndOrdinal(pod.Name)
		workers := fakeapi.Find[*appsv1.StatefulSet](c.Server, parent)
		if workers != nil && !metav1.IsControlledBy(pod, workers) {
			return true
		}
	}
	return false
}

// stranded tells whether a group lacks its workers and the revision to make them of, as
// one of a former life can that was adopted: it takes its share of a rollout's budget.
func stranded(c *cluster) bool {
	keys := map[string]bool{}
	for _, revision := range fakeapi.All[*appsv1.ControllerRevision](c.Objects) {
		keys[revision.Labels[lwsv1.RevisionKey]] = true
	}
	for _, leader := range fakeapi.All[*corev1.Pod](c.Objects) {
		workers := fakeapi.Find[*appsv1.StatefulSet](c.Server, leader.Name)
		if workload.IsLeader(leader, "w") && workers == nil && !keys[leader.Labels[lwsv1.RevisionKey]] {
			return true
		}
	}
	return false
}

func sameInSameOut(t *rapid.T, c *cluster, all []decided, m *met) {
	for _, d := range all {
		again := lws.DecideSet(*d.set)
		if d.group != nil {
			again = lws.DecideGroup(*d.group)
		}
		m.when("a plan", len(again.Actions) > 0)
		if diff := cmp.Diff(d.plan, again); diff != "" {
			t.Fatalf("%s (-once +again)\n%s", d.what, diff)
		}
	}
}

func coreDoesNotMutate(t *rapid.T, c *cluster, all []decided, m *met) {
	set := c.set("w")
	before := dump.ForHash(set)
	plan := lws.DecideSet(set)
	m.when("a plan for a set", len(plan.Actions) > 0)
	if after := dump.ForHash(set); after != before {
		t.Fatalf("the set's snapshot was changed:\n%s", cmp.Diff(before, after))
	}
	for _, name := range groupNames {
		group := c.group(name)
		before := dump.ForHash(group)
		plan := lws.DecideGroup(group)
		m.when("a plan for a group", len(plan.Actions) > 0)
		if after := dump.ForHash(group); after != before {
			t.Fatalf("the snapshot of %s was changed:\n%s", name, cmp.Diff(before, after))
		}
	}
}

// forgedObjectsChangeNothing: what bears a set's labels without its chain, under
// a name that the set does not need, is as if it were not there.
func forgedObjectsChangeNothing(t *rapid.T, c *cluster, all []decided, m *met) {
	bare := all
	forged := c.forge(t)
	if forged == nil {
		return
	}
	if _, needed := byUIDNamed(bare, identity.RefOf(fakeapi.KindOf(forged), forged)); needed {
		return
	}
	m.when(fmt.Sprintf("a forged %s", fakeapi.KindOf(forged)), true)
	for i, d := range c.decideAll() {
		// What left or came was noted: what is judged is the decision.
		again := withVigil(d, bare[i])
		if diff := cmp.Diff(spelled(bare[i].plan), spelled(again)); diff != "" {
			t.Fatalf("%s %s changes the plan of %s (-without +with)\n%s", fakeapi.KindOf(forged), forged.GetName(), d.what, diff)
		}
		if diff := cmp.Diff(bare[i].plan.Waits, again.Waits); diff != "" {
			t.Fatalf("%s %s changes the waits of %s (-without +with)\n%s", fakeapi.KindOf(forged), forged.GetName(), d.what, diff)
		}
	}
}

func withVigil(d, as decided) lws.Plan {
	if d.group != nil {
		w := *d.group
		w.Vigil = as.group.Vigil
		return lws.DecideGroup(w)
	}
	w := *d.set
	w.Vigil = as.set.Vigil
	return lws.DecideSet(w)
}

// byUIDNamed tells whether the set or one of its groups needs a name.
func byUIDNamed(all []decided, ref identity.Ref) (decided, bool) {
	w := all[0].set
	parent, ordinal := identity.ParentAndOrdinal(ref.Name)
	leader := parent == "w" && ref.Name == identity.LeaderName("w", ordinal) && int32(ordinal) < 5
	_, group := identity.ParentAndOrdinal(parent)
	worker := identity.LeaderName("w", group) == parent && ref.Name == identity.LeaderName(parent, ordinal)
	if ref.Name == w.Set.Name || leader || worker {
		return all[0], true
	}
	return decided{}, false
}

// conditionsAreDeterministic: the status does not depend on the order in which
// things were listed, and once written it is not written again.
func conditionsAreDeterministic(t *rapid.T, c *cluster, all []decided, m *met) {
	w := c.set("w")
	seed := rapid.Int64().Draw(t, "order")
	shuffled := shuffle(w, rand.New(rand.NewSource(seed)))
	one, other := of[action.WriteStatus](lws.DecideSet(w)), of[action.WriteStatus](lws.DecideSet(shuffled))
	seen := sortSet(w)
	m.when("two ghosts", len(w.Leaders.Ghosts) > 1)
	m.when("two squatters", len(w.Leaders.Squatters) > 1)
	if len(one) != len(other) {
		t.Fatalf("a status is written in one order only; ghosts %v", seen.ghosts)
	}
	if len(one) == 0 {
		return
	}
	m.when("a status in another order", true)
	if diff := cmp.Diff(one[0].Status, other[0].Status); diff != "" {
		t.Fatalf("the order matters (-one +other)\n%s", diff)
	}
	checkTransitions(t, w.Set.Status.Conditions, one[0].Status.Conditions, w.Set.Generation, w.Now)
	set := w.Set.DeepCopy()
	set.Status = one[0].Status
	w.Set = set
	if again := of[action.WriteStatus](lws.DecideSet(w)); len(again) != 0 {
		t.Fatalf("written twice:\n%s", cmp.Diff(set.Status, again[0].Status))
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
	for _, class := range []*[]T{&claim.Members, &claim.Ghosts, &claim.Orphans, &claim.Squatters} {
		other := append([]T(nil), *class...)
		r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		*class = other
	}
	return claim
}
