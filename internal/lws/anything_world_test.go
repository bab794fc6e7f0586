package lws_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/fakeapi"
)

// anyWorld is a cluster in which a set is edited, deleted and created again, and
// what belongs to it is broken, while its controllers act in any order, the
// operator's caches lag, two operators take turns, and any write may be refused,
// lose its answer, or be the last that its operator makes.
type anyWorld struct {
	*cluster
	t    *rapid.T
	met  *met
	next *lwsv1.LeaderWorkerSet // what the next life of the set is made from
	// images counts templates, and harms and edits what happened.
	images, edits, harms int
	former               *fakeapi.Reader
	other                operator
	// crashes counts how often pods of a name are yet to crash once they run.
	crashes map[string]int
	// squatters are what somebody else put under names of the set.
	squatters map[types.UID]bool
	// sees is set while the cache that is looked through shows all there is.
	sees bool
}

// anyKinds are those that its caches are delivered.
var anyKinds = append(slices.Clone(kinds), identity.KindPersistentVolumeClaim)

// pick draws one of some objects.
func pick[T client.Object](t *rapid.T, objects []T) T {
	return objects[rapid.IntRange(0, len(objects)-1).Draw(t, "which")]
}

// propagation draws how something is deleted.
func (w *anyWorld) propagation(object client.Object) metav1.DeletionPropagation {
	how := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	drawn := rapid.SampledFrom(how).Draw(w.t, "propagation")
	w.met.when(fmt.Sprintf("%s deleted in the %s", fakeapi.KindOf(object), drawn), true)
	return drawn
}

func newAnyWorld(t *rapid.T, m *met) *anyWorld {
	w := &anyWorld{cluster: newCluster(t), t: t, met: m, images: 1, squatters: map[types.UID]bool{}, crashes: map[string]int{}}
	w.WithoutMaxUnavailable = rapid.Bool().Draw(t, "without maxUnavailable")
	w.pass(time.Minute)
	fakeapi.Add(w.Server, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fakeapi.Node, Labels: map[string]string{"rack": "1", "row": "1"},
	}})
	set := fakeapi.Set("w", rapid.Int32Range(0, 4).Draw(t, "replicas"), rapid.Int32Range(1, 3).Draw(t, "size"))
	set.Spec.LeaderWorkerTemplate.RestartPolicy = rapid.SampledFrom(restartPolicies).Draw(t, "policy")
	for range rapid.IntRange(0, 3).Draw(t, "features") {
		w.change(set)
	}
	if w.met.when("volumes", rapid.IntRange(0, 3).Draw(t, "volumes") == 0) {
		drawVolumes(t)(set)
	}
	fakeapi.Add(w.Server, set)
	w.cached, w.former = w.Lagging(), w.Lagging()
	w.restart()
	if rapid.Bool().Draw(t, "settled") {
		w.everybody()
	}
	w.other.cached = w.Lagging()
	w.other.memory = lwscache.NewMemory(w.Now)
	w.other.observer = lwscache.New(w.other.cached, w.Live(), w.other.memory)
	return w
}

func (w *anyWorld) restart() {
	for _, kind := range anyKinds {
		w.cached.Deliver(kind)
	}
	w.awake()
}

// restartSlowly is a new life of the operator whose caches are filled at different
// moments.
func (w *anyWorld) restartSlowly() {
	w.cached = w.former
	w.former = w.Lagging()
	for _, kind := range anyKinds {
		if rapid.Bool().Draw(w.t, "fresh") {
			w.cached.Deliver(kind)
		}
	}
	w.awake()
}

// swap has the other operator take over.
func (w *anyWorld) swap() {
	was := operator{w.cached, w.memory, w.observer}
	w.cached, w.memory, w.observer = w.other.cached, w.other.memory, w.other.observer
	w.other = was
	w.memory.Awaken(w.Now)
}

func (w *anyWorld) lookAtSet(faults bool) {
	if world, err := w.observer.Set(ctx, key("w"), w.Now); err == nil {
		w.carryOut(lws.DecideSet(world), faults)
	}
}

func (w *anyWorld) lookAtGroup(name string, faults bool) {
	if _, plan, err := w.observer.GroupPlan(ctx, key(name), w.Now); err == nil {
		w.carryOut(plan, faults)
	}
}

func (w *anyWorld) step() {
	t := w.t
	switch rapid.IntRange(0, 18).Draw(t, "actor") {
	case 0:
		w.harm()
	case 1, 2, 3:
		w.lookAtSet(true)
	case 4, 5:
		w.lookAtGroup(rapid.SampledFrom(allGroups).Draw(t, "group"), true)
	case 6, 7:
		if all := fakeapi.All[*appsv1.StatefulSet](w.Objects); len(all) > 0 {
			w.Sync(pick(t, all))
		}
	case 8:
		if all := fakeapi.All[*corev1.Pod](w.Objects); len(all) > 0 {
			w.kubelet(pick(t, all))
		}
	case 9:
		w.Collect(pick(t, fakeapi.All[client.Object](w.Objects)))
	case 10:
		w.cached.Deliver(rapid.SampledFrom(anyKinds).Draw(t, "kind"))
	case 11:
		w.pass(time.Duration(rapid.IntRange(100, 20_000).Draw(t, "milliseconds")) * time.Millisecond)
	case 12:
		w.restartSlowly()
	case 13:
		w.met.when("two operators", true)
		w.swap()
	case 14:
		w.former = w.Lagging()
	case 15:
		w.live()
	case 16, 17:
		w.lookAround(true)
	case 18:
		w.others()
	}
}

// lookAround has the operator look at everything.
func (w *anyWorld) lookAround(faults bool) {
	for _, kind := range anyKinds {
		w.cached.Deliver(kind)
	}
	w.sees = true
	w.lookAtSet(faults)
	w.sees = false
	for _, name := range allGroups {
		w.lookAtGroup(name, faults)
	}
}

// kubelet takes a pod a step further, or lets it crash.
func (w *anyWorld) kubelet(pod *corev1.Pod) {
	if w.crashes[pod.Name] == 0 || !fakeapi.Ready(pod) {
		w.Run(pod)
		return
	}
	w.crashes[pod.Name]--
	fakeapi.Edit(w.Server, pod.Name, crash)
}

// live edits the set, ends it, or begins its next life.
func (w *anyWorld) live() {
	set := fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w")
	switch {
	case set == nil:
		w.create()
	case w.edits >= 6 || set.DeletionTimestamp != nil:
	case rapid.IntRange(0, 4).Draw(w.t, "an end") == 0:
		w.edits++
		w.met.when("a set deleted", true)
		w.next = &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}, Spec: *set.Spec.DeepCopy()}
		if rapid.Bool().Draw(w.t, "another spec") {
			w.change(w.next)
		}
		w.Remove(set, w.propagation(set))
	default:
		w.edits++
		fakeapi.Edit(w.Server, "w", w.changeAnew)
	}
}

// create begins the next life of the set, if it is time.
func (w *anyWorld) create() {
	if w.next != nil && fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w") == nil {
		fakeapi.Add(w.Server, w.next)
		w.next = nil
	}
}

// everybody has every actor act in turn until nobody finds anything to do.
func (w *anyWorld) everybody() {
	still := 0
	for round := 0; still < 12; round++ {
		if round > 600 {
			w.t.Fatalf("never settles: %v; %v", brief(w.status()), w.decideAll())
		}
		before := w.version()
		w.create()
		w.turn()
		still++
		if !maps.Equal(before, w.version()) {
			still = 0
		}
	}
}

func (w *anyWorld) turn() {
	w.lookAround(false)
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](w.Objects) {
		w.Sync(sts)
	}
	for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
		if slices.Contains(pod.Finalizers, heldBy) {
			w.Release(pod, heldBy)
			continue
		}
		w.kubelet(pod)
	}
	w.collect()
	w.pass(30 * time.Second)
}
