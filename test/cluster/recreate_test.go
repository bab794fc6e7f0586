package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// The size of the sets that are deleted and created again.
const (
	groups    = 10
	groupSize = 4
	allPods   = groups * groupSize
)

// wholeSet is what a set creates that adopts nothing.
var wholeSet = births{Pods: allPods, StatefulSets: 1 + groups, Services: 1, Revisions: 1}

// rolledSet is what a set creates that adopts everything and rolls it to another template. The
// leader StatefulSet and the Service stay.
var rolledSet = births{Pods: allPods, StatefulSets: groups, Revisions: 1}

// setWithKeys is what a set of Hash groups creates that adopts nothing: its leaders belong to a Deployment.
var setWithKeys = births{Pods: allPods, StatefulSets: groups, Services: 1, Revisions: 1}

// recreation is a way to delete a set and to create the next one with an image.
type recreation struct {
	policy metav1.DeletionPropagation
	image  string
	want   births // what the next set creates
	both   edit   // changes both sets
	next   edit   // changes the next set
}

var recreations = map[string]recreation{
	"background":        {policy: metav1.DeletePropagationBackground, image: imageB, want: wholeSet},
	"foreground":        {policy: metav1.DeletePropagationForeground, image: imageB, want: wholeSet},
	"orphan":            {policy: metav1.DeletePropagationOrphan, image: imageB, want: rolledSet},
	"orphan, unchanged": {policy: metav1.DeletePropagationOrphan, image: imageA},
	// With the same template the previous revision has the name that the new one needs.
	"background, unchanged": {policy: metav1.DeletePropagationBackground, image: imageA, want: wholeSet},

	"background, with keys":        {policy: metav1.DeletePropagationBackground, image: imageB, want: setWithKeys, both: withKeys},
	"foreground, with keys":        {policy: metav1.DeletePropagationForeground, image: imageA, want: setWithKeys, both: together(withKeys, slowly("2s"))},
	"orphan, unchanged, with keys": {policy: metav1.DeletePropagationOrphan, image: imageA, both: withKeys},

	// Template, network and number of groups may all differ.
	"background, in another shape": {policy: metav1.DeletePropagationBackground, image: imageB, want: smallerSet, next: together(smaller, uniquePerReplica)},
	"foreground, in another shape": {policy: metav1.DeletePropagationForeground, image: imageB, want: smallerSet, next: together(smaller, uniquePerReplica)},
	"orphan, in another shape":     {policy: metav1.DeletePropagationOrphan, image: imageB, want: smallerRolledSet, next: smaller},
}

// What a smaller set with Services of its groups creates, and one that adopts everything and rolls it.
var (
	smallerSet       = births{Pods: 6 * 3, StatefulSets: 1 + 6, Services: 6, Revisions: 1}
	smallerRolledSet = births{Pods: 6 * 3, StatefulSets: 6, Revisions: 1}
)

// smaller gives a set six groups of three, whose leaders have a template of their own.
func smaller(set *lwsv1.LeaderWorkerSet) {
	set.Spec.Replicas, set.Spec.LeaderWorkerTemplate.Size = new(int32(6)), new(int32(3))
	leader := set.Spec.LeaderWorkerTemplate.WorkerTemplate.DeepCopy()
	leader.Labels = map[string]string{"role": "leader"}
	set.Spec.LeaderWorkerTemplate.LeaderTemplate = leader
}

func TestRecreate(t *testing.T) {
	for name := range recreations {
		t.Run(name, recreateRounds(name))
	}
}

// recreateRounds creates a set, deletes and creates it at once, and deletes it.
func recreateRounds(way string) func(*testing.T) {
	return func(t *testing.T) {
		for n := range rounds(t) {
			if !t.Run(fmt.Sprintf("round %d", n+1), func(t *testing.T) { recreateUnder(t, 1, nil, recreations[way]) }) {
				return
			}
		}
	}
}

// end deletes a set and waits until nothing of it is left.
func (s *scene) end(set *lwsv1.LeaderWorkerSet, policy metav1.DeletionPropagation) {
	s.Remove(set, propagation(policy))
	s.awaitNothing(set.UID)
}

// incarnation is a set from the deletion of its predecessor on.
type incarnation struct {
	set     *lwsv1.LeaderWorkerSet
	before  *lwsv1.LeaderWorkerSet // the predecessor
	policy  metav1.DeletionPropagation
	mark    int // changes seen before the deletion
	audited int // position of the audit log before the deletion
}

// recreate deletes a set and creates the next one of its name as soon as the API server accepts it.
func (s *scene) recreate(old, next *lwsv1.LeaderWorkerSet, policy metav1.DeletionPropagation) incarnation {
	l := s.endFor(old, next, policy)
	l.set = s.beginNext(l)
	return l
}

// endFor deletes a set to make room for the next one.
func (s *scene) endFor(old, next *lwsv1.LeaderWorkerSet, policy metav1.DeletionPropagation) incarnation {
	l := incarnation{set: next, before: old, policy: policy, audited: bed.Position(), mark: s.Changes()}
	s.persist("delete set "+old.Name, func() error {
		here := client.Preconditions{UID: &old.UID}
		return client.IgnoreNotFound(s.Client.Delete(s.Context(), old.DeepCopy(), propagation(policy), here))
	})
	return l
}

// beginNext creates the set of a incarnation as soon as its predecessor is gone, without waiting for a
// watch, and returns it as created.
func (s *scene) beginNext(l incarnation) *lwsv1.LeaderWorkerSet {
	s.Eventually("set "+l.before.Name+" is gone", func() error {
		var now lwsv1.LeaderWorkerSet
		err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(l.before), &now)
		if client.IgnoreNotFound(err) != nil || (err == nil && now.UID == l.before.UID) {
			return errors.Join(err, fmt.Errorf("finalizers %v", now.Finalizers))
		}
		return nil
	})
	created := l.set
	s.persist("create set "+l.set.Name, func() error {
		attempt := l.set.DeepCopy()
		err := s.Client.Create(s.Context(), attempt)
		if err == nil {
			created = attempt
		}
		return err
	})
	return created
}

// judge checks that an incarnation created what it needed, of its own template, for itself alone.
func (s *scene) judge(l incarnation, want births) {
	image := l.set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image
	pods := bornSince[*corev1.Pod](s, l.mark)
	own, _ := s.ownedBy(l.set.UID, slices.Concat(pods, s.revisionsSince(l.mark)))
	for _, rec := range own {
		switch o := rec.Last.(type) {
		case *corev1.Pod:
			s.Check("image of pod "+o.Name, drill.Lacking("image", image, imageOf(o)))
		case *appsv1.ControllerRevision:
			s.Check("revision "+o.Name, drill.Lacking("of image "+image, true, strings.Contains(string(o.Data.Raw), image)))
		}
	}
	s.wantBorn(l.set.UID, l.mark, want)
	_, found := s.ownedBy(l.set.UID, slices.Concat(bornSince[*appsv1.StatefulSet](s, l.mark), // only the operator creates these
		bornSince[*corev1.Service](s, l.mark), s.revisionsSince(l.mark)))
	expect.Equalf(s, "", names(found), "created for the previous incarnation")
	adopted := s.Pick(func(rec *drill.Record) bool { return rec.Born <= l.mark && slices.Contains(rec.Owners, l.set.UID) })
	expect.Must(s, len(adopted) == 0 || l.policy == metav1.DeletePropagationOrphan,
		"adopted from the previous incarnation: %s", names(adopted))
	s.Check("read the audit log", bed.Audit.Sync())
	created := bed.Audit.Kept(l.audited, func(r drill.Request) bool { return drill.CreatesPod(r) && r.Namespace == s.Namespace })
	s.Until("the recorder has seen all pods", func() bool { return len(bornSince[*corev1.Pod](s, l.mark)) >= len(created) })
}

// wantBorn checks what was created since a mark for the set with this UID.
func (s *scene) wantBorn(uid types.UID, mark int, want births) {
	expect.Equalf(s, want, s.bornInto(uid, mark), "created")
}

// A fault strikes a set that is deleted and recreated. It begins before the deletion. What it
// returns waits until the fault is over.
type fault struct {
	name  string
	begin func(s *scene, salt uint64) (over func() error)
	// together is how many rounds share one fault: a fault that takes long strikes many sets at once.
	together int
}

var faults = []fault{
	{"operator killed", atRandomMoment(func() error {
		return errors.Join(bed.Operator.Kill(), bed.Operator.Start())
	}), 1},
	{"API server killed", withoutAPIServer, 5},
	{"controller manager killed", atRandomMoment(func() error {
		return errors.Join(bed.Plane.Kill(controllerManager), bed.Plane.Restart(controllerManager))
	}), 5},
	{"garbage collector held up", withoutGarbageCollector, 10},
}

func TestRecreateSurvives(t *testing.T) {
	for i, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			for j, way := range []string{"background", "foreground", "orphan"} {
				t.Run(way, func(t *testing.T) {
					for begun := 0; begun < faultRounds(t); {
						share := min(f.together, faultRounds(t)-begun)
						salt := uint64(begun*100 + i*10 + j) // another one for every fault
						ok := t.Run(fmt.Sprintf("rounds %d-%d", begun+1, begun+share), func(t *testing.T) {
							recreateUnder(t, share, func(s *scene) func() error { return f.begin(s, salt) }, recreations[way])
						})
						if !ok {
							return
						}
						begun += share
					}
				})
			}
		})
	}
}

// recreateUnder deletes and creates sets, each in its own namespace, while a fault strikes that begins
// before. Then it deletes them, which creates nothing.
func recreateUnder(t *testing.T, sets int, fault func(*scene) (over func() error), r recreation) {
	t.Helper()
	scenes := make([]*scene, sets)
	next := make([]incarnation, sets)
	for i := range scenes {
		scenes[i] = newScene(t)
		next[i].set = scenes[i].settled(scenes[i].newSet("a", groups, groupSize, imageA, r.both))
	}
	end := r.policy
	if end == metav1.DeletePropagationOrphan {
		end = metav1.DeletePropagationForeground
	}
	over := func() error { return nil }
	if fault != nil {
		over = fault(scenes[sets-1])
	}
	for i, s := range scenes {
		next[i] = s.endFor(next[i].set, s.newSet("a", groups, groupSize, r.image, r.both, r.next), r.policy)
	}
	for i, s := range scenes {
		next[i].set = s.beginNext(next[i])
	}
	for i, s := range scenes {
		s.awaitSettled(next[i].set)
	}
	scenes[0].Check("the fault is over", over())
	for i, s := range scenes {
		now := s.awaitSettled(next[i].set)
		s.judge(next[i], r.want)
		s.end(now, end)
		if fault == nil {
			outlast(t)
			same(t, "objects left", "", names(s.versions()))
		}
		s.judge(next[i], r.want)
	}
}

// moments is how many changes a random moment is chosen from. Each name has at least 4 changes: the
// old pod goes, the new one comes, is bound, is ready.
const moments = 3 * allPods

// atRandomMoment strikes after a random number of changes. A moment that never comes fails the drill.
func atRandomMoment(strike func() error) func(*scene, uint64) func() error {
	return func(s *scene, salt uint64) func() error {
		after := 1 + rand.New(rand.NewPCG(seed(), salt)).IntN(moments)
		at := s.Changes() + after
		s.Logf("LOCKSTEP_SEED=%d: strikes after change %d", seed(), after)
		done := make(chan error, 1)
		go func() {
			deadline := time.After(patience)
			for s.Changes() < at {
				select {
				case <-s.Next():
				case <-s.Context().Done():
					done <- s.Context().Err()
					return
				case <-deadline:
					done <- fmt.Errorf("change %d was never seen: the fault did not strike", after)
					return
				}
			}
			done <- strike()
		}()
		return atLast(s, done)
	}
}

// atLast waits for the end of a fault, at the latest when the test is over.
func atLast(s *scene, done <-chan error) func() error {
	over := sync.OnceValue(func() error { return <-done })
	s.Cleanup(func() { _ = over() })
	return over
}

// withoutAPIServer restarts the API server and the scheduler at a random moment. The scheduler ends itself
// when a pod that it binds is bound elsewhere. While the garbage collector has no watch, it misses the end
// of a StatefulSet whose name is taken again. It then keeps the ControllerRevision of that StatefulSet. So
// over restarts the controller manager, once the sets are settled.
func withoutAPIServer(s *scene, salt uint64) func() error {
	back := atRandomMoment(func() error {
		return errors.Join(bed.Plane.Kill(apiServer), bed.Plane.Restart(apiServer), bed.Plane.Restart(scheduler))
	})(s, salt)
	return func() error {
		return errors.Join(back(), bed.Plane.Restart(controllerManager))
	}
}

// holdUp is how long the garbage collector is away.
const holdUp = 20 * time.Second

// withoutGarbageCollector runs the controller manager without it for a while.
func withoutGarbageCollector(s *scene, _ uint64) func() error {
	s.Check("stop the garbage collector", errors.Join(bed.Plane.Kill(controllerManager),
		bed.Plane.Restart(controllerManager, "--kcm-controllers", "*,-garbage-collector-controller")))
	done := make(chan error, 1)
	time.AfterFunc(holdUp, func() {
		done <- errors.Join(bed.Plane.Kill(controllerManager), bed.Plane.Restart(controllerManager, "--kcm-controllers", "*"))
	})
	return atLast(s, done)
}

// Reasons of events and conditions while a previous object has a name, and after it.
const (
	waiting = "WaitingForPreviousIncarnation"
	gone    = "PreviousIncarnationGone"
)

// keep adds a finalizer to a pod and returns the pod.
func (s *scene) keep(name string) *corev1.Pod {
	pod := s.Pod(name)
	s.Patch(pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, foreign))
	return pod
}

// A previous worker holds back its own group only, whose leader is there. The StatefulSet controller creates leaders in
// batches of 1, 2, 4, and none after a batch with a previous leader. A pod that stays for a minute is reported.
func TestStuckPodHoldsBackItsOwnGroupOnly(t *testing.T) {
	t.Run("worker", func(t *testing.T) { stuckPod(t, "a-3-2", 1, false, 3) })
	t.Run("leader", func(t *testing.T) { stuckPod(t, "a-4", 0, true, 4, 7, 8, 9) })
	t.Run("first leader", func(t *testing.T) { stuckPod(t, "a-0", 0, false, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9) })
}

// stuckPod deletes and creates a set while one previous pod stays, until it is reported if that is asked.
// The groups held back are not ready, and have so many pods all the same; the pod is of the first.
func stuckPod(t *testing.T, name string, there int, reported bool, held ...int) {
	for range faultRounds(t) {
		s := newScene(t)
		old := s.settled(s.newSet("a", groups, groupSize, imageA))
		pod := s.keep(name)
		l := s.recreate(old, s.newSet("a", groups, groupSize, imageB), metav1.DeletePropagationBackground)
		for i := range groups {
			if !slices.Contains(held, i) {
				s.awaitGroupReady(l.set, i)
			}
		}
		s.Eventually("the condition names the pod", func() error { return s.unnamed(l.set, len(held), name) })
		s.Check("events of the end", drill.Lacking(gone, 0, len(s.Events(l.set, gone))))
		want := allPods - groupSize*len(held) + there
		s.Until("all other pods are there", func() bool { return s.bornInto(l.set.UID, l.mark).Pods >= want })
		s.Check("pods beside the stuck one", drill.Lacking("pods", want, s.bornInto(l.set.UID, l.mark).Pods))
		if reported {
			s.Until("a warning names the pod and its finalizer", func() bool {
				return slices.ContainsFunc(s.Events(l.set, ""), func(e *eventsv1.Event) bool {
					return e.Type == corev1.EventTypeWarning && mentions(e.Note, name) && mentions(e.Note, foreign)
				})
			})
			s.Eventually("so does the condition", func() error { return s.unnamed(l.set, len(held), name, foreign) })
			for _, g := range s.ask("", "status", "a").Groups { // the plugin shows which object the group waits for
				waits := g.ReadyPods == 0 && len(g.Ghosts) > 0 && g.Ghosts[0].Name == name && len(g.Waiting) > 0 && g.Waiting[0].Reason == waiting
				expect.That(t, waits == (g.Index == held[0]) && g.Ready != slices.Contains(held, g.Index),
					"the plugin shows %+v", g)
			}
			s.Check("the pod was not deleted by force", drill.Lacking("UID", pod.UID, s.Pod(name).UID))
		}

		s.Patch(pod, drill.NoFinalizers)
		s.awaitGroupReady(l.set, held[0])
		now := s.awaitSettled(l.set)
		s.judge(l, wholeSet)
		for _, reason := range []string{waiting, gone} {
			s.Until("one event reports "+reason, func() bool {
				found := s.Events(l.set, reason)
				return len(found) == 1 && found[0].Series == nil
			})
		}
		s.end(now, metav1.DeletePropagationBackground)
	}
}

// unnamed is an error unless the condition names an object that the set waits for, and all groups
// that are not held back are ready.
func (s *scene) unnamed(want *lwsv1.LeaderWorkerSet, held int, objects ...string) error {
	set := s.Set(want.Name)
	if set == nil {
		return drill.ErrStill
	}
	if err := holds(set, lwsv1.LeaderWorkerSetProgressing, waiting); err != nil {
		return err
	}
	for _, c := range set.Status.Conditions {
		for _, object := range objects {
			if c.Reason == waiting && !mentions(c.Message, object) {
				return fmt.Errorf("the message does not name %s: %s", object, c.Message)
			}
		}
	}
	return drill.Lacking("ready groups", *want.Spec.Replicas-int32(held), set.Status.ReadyReplicas)
}

// mentions reports whether a text has a name as a word of its own.
func mentions(text, name string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,:;\"()", r) }), name)
}

// restored are the kinds of a backup of a whole namespace, in the order in which they are created
// again: pods come before their owners.
var restored = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
	corev1.SchemeGroupVersion.WithKind("Pod"),
	appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
	corev1.SchemeGroupVersion.WithKind("Service"),
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	lwsv1.GroupVersion.WithKind("LeaderWorkerSet"),
}

// backUp reads all objects of kinds.
func (s *scene) backUp(kinds ...schema.GroupVersionKind) (all []*unstructured.Unstructured) {
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		s.Check("back up", s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)))
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all
}

// restore creates objects again without what belongs to their former incarnation: UID, owners,
// status, and the node or volume that they were bound to.
func (s *scene) restore(backup []*unstructured.Unstructured) {
	for _, u := range backup {
		for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "ownerReferences", "managedFields", "generateName"} {
			unstructured.RemoveNestedField(u.Object, "metadata", field)
		}
		for _, key := range []string{"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller", "volume.kubernetes.io/selected-node"} {
			unstructured.RemoveNestedField(u.Object, "metadata", "annotations", key)
		}
		for _, field := range [][]string{{"status"}, {"spec", "nodeName"}, {"spec", "volumeName"}, {"spec", "clusterIP"}, {"spec", "clusterIPs"}} {
			if u.GetKind() != "Service" || field[0] == "status" { // a headless Service says so by its address
				unstructured.RemoveNestedField(u.Object, field...)
			}
		}
		s.Check("restore "+u.GetKind()+" "+u.GetName(), s.Client.Create(s.Context(), u))
	}
}

// A namespace is restored from a backup, whole or without what Lockstep makes itself. The set is whole
// again, and everything that was restored stays: pods and StatefulSets are adopted, PVCs are used.
func TestRestoreFromABackup(t *testing.T) {
	each(t, map[string][]schema.GroupVersionKind{
		"whole": restored, "sets and PVCs": {restored[0], restored[len(restored)-1]},
	}, func(s *scene, kinds []schema.GroupVersionKind) {
		set := s.settled(s.newSet("a", 2, 3, imageA, volumes(keepClaims, keepClaims)))
		backup := s.backUp(kinds...)
		s.Remove(set)
		s.Eventually("the namespace is empty", func() error {
			for _, u := range s.backUp(restored...) {
				if u.GetKind() == "PersistentVolumeClaim" && u.GetDeletionTimestamp() == nil {
					s.Remove(u)
				}
			}
			return drill.Lacking("objects", 0, len(s.backUp(restored...)))
		})
		s.restore(backup)
		s.Until("the set is there again", func() bool { again := s.Set("a"); return again != nil && again.UID != set.UID })
		s.awaitSettled(s.Set("a"))
		now := map[types.UID]bool{}
		for _, u := range s.backUp(restored...) {
			now[u.GetUID()] = true
		}
		for _, u := range backup {
			expect.That(s, now[u.GetUID()], "%s %s was restored, and replaced", u.GetKind(), u.GetName())
		}
		same(s.T, "pods", 6, len(s.UIDs()))
	})
}
