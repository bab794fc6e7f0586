package lws_test

import (
	"reflect"
	"slices"
	"testing"
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
	"lockstep.dev/lockstep/test/fakeapi"
)

// kinds are those that a cache is delivered, each at its own pace.
var kinds = []identity.Kind{
	identity.KindLeaderWorkerSet, identity.KindStatefulSet, identity.KindPod, identity.KindService, identity.KindControllerRevision,
}

// fakeWorld is a cluster in which a set is deleted and created again while its
// controllers, the garbage collector, the kubelets and the operator act in any
// order, and the operator's caches lag.
type fakeWorld struct {
	*cluster
	replicas, size int32
	how            metav1.DeletionPropagation
	// grace is how long a pod takes to leave at least, at the end of a run.
	grace time.Duration
	// other tells whether the second life has another template.
	other bool
	// collector is off for as long as nobody collects garbage.
	collector bool
	// second is the set's UID in its second life, once it has begun.
	second types.UID
	// made counts the pods made since the deletion, by the life they are of.
	made map[types.UID]int
}

func newWorld(t *rapid.T, how metav1.DeletionPropagation, collector bool) *fakeWorld {
	w := &fakeWorld{
		cluster:  newCluster(t),
		replicas: rapid.Int32Range(1, 3).Draw(t, "replicas"), size: rapid.Int32Range(1, 3).Draw(t, "size"),
		grace: time.Duration(rapid.IntRange(0, 8).Draw(t, "grace")) * time.Second,
		how:   how, other: rapid.Bool().Draw(t, "other template"), collector: collector, made: map[types.UID]int{},
	}
	w.pass(time.Minute)
	fakeapi.Add(w.Server, fakeapi.Set("w", w.replicas, w.size))
	w.settle(groupNames[:w.replicas]...)
	w.cached = w.Lagging()
	w.restart()
	w.pass(time.Minute)
	w.Added = func(object client.Object) { w.note(t, object) }
	w.Remove(find[*lwsv1.LeaderWorkerSet](w.cluster, "w"), how)
	return w
}

// note counts a pod to the life it is of, and checks that none of the second
// life carries the first one's template.
func (w *fakeWorld) note(t *rapid.T, object client.Object) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	life := w.lifeOf(pod)
	w.made[life]++
	if image := pod.Spec.Containers[0].Image; life == w.second && image != w.image() {
		t.Fatalf("pod %s of the second life has %s, want %s", pod.Name, image, w.image())
	}
}

func (w *fakeWorld) image() string {
	if w.other {
		return "image:2"
	}
	return "image:1"
}

// lifeOf follows the chain of a pod's owners to the set at its end.
func (w *fakeWorld) lifeOf(object metav1.Object) types.UID {
	for {
		owner := metav1.GetControllerOf(object)
		if owner == nil {
			return ""
		}
		above := w.Objects[fakeapi.Name{Kind: identity.Kind(owner.Kind), Namespace: fakeapi.Namespace, Name: owner.Name}]
		if identity.Kind(owner.Kind) == identity.KindLeaderWorkerSet || above == nil || above.GetUID() != owner.UID {
			return owner.UID
		}
		object = above
	}
}

// restart starts the operator anew, with caches filled.
func (w *fakeWorld) restart() {
	for _, kind := range kinds {
		w.cached.Deliver(kind)
	}
	w.awake()
}

// create begins the second life as soon as the name is free.
func (w *fakeWorld) create() {
	if w.second != "" || fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w") != nil {
		return
	}
	w.second = fakeapi.Add(w.Server, fakeapi.Set("w", w.replicas, w.size, fakeapi.Image(w.image()))).UID
}

// carryOut writes a plan as a pass does: it ends with the first refusal, and
// what it wrote is in the cache before the next look.
func (w *fakeWorld) carryOut(plan lws.Plan) {
	for _, a := range plan.Actions {
		if w.Do(a) != nil {
			return
		}
		w.cached.Deliver(a.Target().Kind)
	}
}

func (w *fakeWorld) lookAtSet() {
	if world, err := w.observer.Set(ctx, key("w"), w.Now); err == nil {
		w.carryOut(lws.DecideSet(world))
	}
}

func (w *fakeWorld) lookAtGroup(name string) {
	if _, plan, err := w.observer.GroupPlan(ctx, key(name), w.Now); err == nil {
		w.carryOut(plan)
	}
}

// step has one actor, drawn, do one thing.
func (w *fakeWorld) step(t *rapid.T) {
	switch rapid.IntRange(0, 9).Draw(t, "actor") {
	case 0:
		w.create()
	case 1, 2:
		w.lookAtSet()
	case 3:
		w.lookAtGroup(rapid.SampledFrom(groupNames[:w.replicas]).Draw(t, "group"))
	case 4:
		if all := fakeapi.All[*appsv1.StatefulSet](w.Objects); len(all) > 0 {
			w.Sync(rapid.SampledFrom(all).Draw(t, "statefulset"))
		}
	case 5:
		if all := fakeapi.All[*corev1.Pod](w.Objects); len(all) > 0 {
			w.Run(rapid.SampledFrom(all).Draw(t, "pod"))
		}
	case 6:
		if all := fakeapi.All[client.Object](w.Objects); len(all) > 0 && w.collector {
			w.Collect(rapid.SampledFrom(all).Draw(t, "collected"))
		}
	case 7:
		w.cached.Deliver(rapid.SampledFrom(kinds).Draw(t, "kind"))
	case 8:
		w.pass(time.Duration(rapid.IntRange(100, 3000).Draw(t, "milliseconds")) * time.Millisecond)
	case 9:
		if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
			w.restart()
		}
	}
}

// everybody has every actor act in turn, until nobody finds anything to do.
func (w *fakeWorld) everybody(t *rapid.T) {
	still := 0
	for round := 0; still < 12; round++ {
		if round > 400 {
			t.Fatalf("never settles: %v; %v", brief(w.status()), w.decideAll())
		}
		before := w.version()
		w.create()
		for _, kind := range kinds {
			w.cached.Deliver(kind)
		}
		w.lookAtSet()
		for _, name := range groupNames[:w.replicas] {
			w.lookAtGroup(name)
		}
		for _, sts := range fakeapi.All[*appsv1.StatefulSet](w.Objects) {
			w.Sync(sts)
		}
		for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
			if pod.DeletionTimestamp == nil || w.Now.Sub(pod.DeletionTimestamp.Time) >= w.grace {
				w.Run(pod)
			}
		}
		for _, object := range fakeapi.All[client.Object](w.Objects) {
			if standing := w.Objects[fakeapi.NameOf(object)]; standing != nil && w.collector {
				w.Collect(standing)
			}
		}
		w.pass(time.Second)
		still++
		if !reflect.DeepEqual(before, w.version()) {
			still = 0
		}
	}
}

// checkSecondLife checks what must be true at the end, however it came about.
func (w *fakeWorld) checkSecondLife(t *rapid.T) {
	if got := brief(w.status())[available]; got != isAvailable {
		t.Fatalf("not available: %v", brief(w.status()))
	}
	pods := fakeapi.All[*corev1.Pod](w.Objects)
	if len(pods) != int(w.replicas*w.size) {
		t.Fatalf("%d pods stand, want %d", len(pods), w.replicas*w.size)
	}
	for _, pod := range pods {
		if pod.Spec.Containers[0].Image != w.image() || w.lifeOf(pod) != w.second {
			t.Fatalf("pod %s of life %s has %s", pod.Name, w.lifeOf(pod), pod.Spec.Containers[0].Image)
		}
	}
	want := int(w.replicas * w.size)
	if w.how == metav1.DeletePropagationOrphan && !w.other {
		want = 0
	}
	if w.made[w.second] != want {
		t.Fatalf("%d pods of the second life were made, want %d", w.made[w.second], want)
	}
	own := slices.DeleteFunc(revisions(w.cluster), func(r *appsv1.ControllerRevision) bool {
		return w.lifeOf(r) != w.second || r.Labels[lws.HistoryLabelKey] != ""
	})
	if len(own) != 1 || !reflect.DeepEqual(own[0].Data.Raw, mustData(t, find[*lwsv1.LeaderWorkerSet](w.cluster, "w"))) {
		t.Fatalf("%d revisions of the second life, want one of its template", len(own))
	}
}

func mustData(t *rapid.T, set *lwsv1.LeaderWorkerSet) []byte {
	encoded, err := lws.RevisionData(set)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return encoded
}

// TestASetDeletedAndCreatedAgain: whatever the order of events and however much
// the caches lag, the second life settles with exactly the pods it asks for, none
// made twice, none from the first one's template.
func TestASetDeletedAndCreatedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		how       metav1.DeletionPropagation
		collector bool
	}{
		"background":                   {metav1.DeletePropagationBackground, true},
		"background without collector": {metav1.DeletePropagationBackground, false},
		"foreground":                   {metav1.DeletePropagationForeground, true},
		"orphan":                       {metav1.DeletePropagationOrphan, true},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := newWorld(t, tt.how, tt.collector)
				for range rapid.IntRange(0, 120).Draw(t, "steps") {
					w.step(t)
				}
				w.everybody(t)
				w.checkSecondLife(t)
			})
		})
	}
}
