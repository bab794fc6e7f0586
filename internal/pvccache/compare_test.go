package pvccache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/pvc"
)

// crowd are pods of a large namespace, as the memory of them is filled.
func crowd(pods int) (all []any, live []corev1.Pod) {
	for i := range pods {
		pod := tenant(fmt.Sprint("pod-", i), "1")
		all, live = append(all, pod), append(live, *pod)
	}
	return all, live
}

// In a large namespace with a late watch, versions are compared: what the memory has as
// it is listed is not read, what it has otherwise is, and what is not listed has gone.
func TestALateWatchOfALargeNamespaceIsCompared(t *testing.T) {
	all, pods := crowd(cheapList + 1)
	known, moved, gone, fresh, reborn := tenant("known", "2", "known"), tenant("moved", "3", "moved"), tenant("gone", "4", "gone"), tenant("fresh", "8", "fresh"), tenant("reborn", "5", "reborn")
	moved.Spec.NodeName = ""
	p := NewPods()
	do(t, p.Sink().Replace(append(all, known, moved, gone, reborn), "7"))
	bound, another := tenant("moved", "9", "moved"), tenant("reborn", "5")
	another.UID = "another"
	live := &fakePods{version: "9", page: 100, pods: append(pods, *known, *bound, *fresh, *another)}
	var waiting []*corev1.PersistentVolumeClaim
	for _, name := range []string{"known", "moved", "gone", "fresh", "reborn", "free"} {
		waiting = append(waiting, going(name, pvc.BarrierFinalizer))
	}
	view, readings := looked(t, p, live, waiting...)
	if diff := cmp.Diff([]string{"gone", "reborn", "free"}, judged(view)); diff != "" {
		t.Errorf("released (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"moved", "fresh", "reborn"}, live.met); diff != "" {
		t.Errorf("read one by one (-want +got)\n%s", diff)
	}
	if live.full != 0 || readings[0].By != ByList {
		t.Errorf("%d lists of whole pods, told %+v", live.full, readings)
	}
}

func TestAMemoryFarBehindIsNotCompared(t *testing.T) {
	all, pods := crowd(cheapList + 1)
	p := NewPods()
	do(t, p.Sink().Replace(all, "7"))
	for i := range mostStrangers + 1 {
		pods = append(pods, *tenant(fmt.Sprint("new-", i), "8", "used"))
	}
	live := &fakePods{version: "9", page: 100, pods: pods}
	view, _ := looked(t, p, live, going("used", pvc.BarrierFinalizer), going("free", pvc.BarrierFinalizer))
	if diff := cmp.Diff([]string{"free"}, judged(view)); diff != "" {
		t.Error(diff)
	}
	if live.full != 1 || len(live.met) != 0 {
		t.Errorf("%d lists of whole pods, %v read one by one", live.full, live.met)
	}
}

func TestWhatCannotBeComparedIsInUse(t *testing.T) {
	down := errors.New("down")
	for name, failing := range map[string]int{"the first page": 1, "the second": 2, "a pod": 7} {
		all, pods := crowd(cheapList + 1)
		p := NewPods()
		do(t, p.Sink().Replace(all, "7"))
		live := &fakePods{version: "8", page: 100, pods: append(pods, *tenant("new", "8"))}
		live.fail = func(calls int) error {
			if calls == failing {
				return down
			}
			return nil
		}
		view, _ := looked(t, p, live, going("free", pvc.BarrierFinalizer))
		if len(judged(view)) != 0 || !errors.Is(view.Err(), down) {
			t.Errorf("%s: released %v, %v", name, judged(view), view.Err())
		}
	}
}

// Versions are compared again sooner than pods are listed again.
func TestWhatAListCostDecidesWhenTheNextComes(t *testing.T) {
	for name, tt := range map[string]struct {
		strangers int
		pause     time.Duration
	}{"compared": {0, compareShare * time.Second}, "listed": {mostStrangers + 1, listShare * time.Second}} {
		all, pods := crowd(cheapList + 1)
		p := NewPods()
		do(t, p.Sink().Replace(all, "7"))
		for i := range tt.strangers {
			pods = append(pods, *tenant(fmt.Sprint("new-", i), "8"))
		}
		now := time.Unix(0, 0)
		live := &fakePods{version: "9", page: 1000, pods: pods}
		looker := NewLooker(p, live, func() time.Time { return now }, func(Reading) {})
		looker.CatchingUp(func(context.Context, string, metav1.ListOptions) (watch.Interface, error) {
			return nil, errors.New("none")
		})
		live.fail = func(calls int) error { // the first page takes a second
			if calls == 0 {
				now = now.Add(time.Second)
			}
			return nil
		}
		batch := pvc.Settings{}.Take("ns", []*corev1.PersistentVolumeClaim{going("free", pvc.BarrierFinalizer)})
		do(t, looker.everything(t.Context(), "ns", batch, func(*corev1.Pod) {}))
		if now = now.Add(tt.pause - 1); looker.mayList("ns") {
			t.Errorf("%s: read again before %v", name, tt.pause)
		}
		if now = now.Add(1); !looker.mayList("ns") {
			t.Errorf("%s: not read again after %v", name, tt.pause)
		}
	}
}

func TestManyClaimsWaitLessForTheWatch(t *testing.T) {
	for claims, want := range map[int]time.Duration{0: reachWithin, 1: reachWithin, 100: reachWithin, 250: 100 * time.Millisecond, 1000: leastWait} {
		if got := patience(claims); got != want {
			t.Errorf("%d claims wait %v, want %v", claims, got, want)
		}
	}
}

// Whatever the memory has missed: compared pods say of every claim what the pods
// themselves would.
func TestComparedPodsDecideAsListedOnesLaw(t *testing.T) {
	all, crowded := crowd(cheapList + 1)
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}
		draw := func(what, name string) *corev1.Pod {
			pod := tenant(name, fmt.Sprint(rapid.IntRange(1, 3).Draw(t, what+" version")), rapid.SliceOfN(rapid.SampledFrom(names), 0, 2).Draw(t, what+" claims")...)
			pod.UID = types.UID(rapid.SampledFrom([]string{name, "other " + name}).Draw(t, what+" UID"))
			if rapid.Bool().Draw(t, what+" unbound") {
				pod.Spec.NodeName = ""
			}
			if rapid.Bool().Draw(t, what+" unknown") {
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "new"})
			}
			return pod
		}
		p := NewPods()
		remembered, pods := all, crowded
		for _, name := range names {
			before, after := draw("remembered "+name, "p-"+name), draw("live "+name, "p-"+name)
			if before.UID == after.UID && before.ResourceVersion == after.ResourceVersion {
				before = after // a version of an object is one object
			}
			if rapid.Bool().Draw(t, "remember "+name) {
				remembered = append(remembered[:len(remembered):len(remembered)], before)
			}
			if rapid.Bool().Draw(t, "live "+name) {
				pods = append(pods[:len(pods):len(pods)], *after)
			}
		}
		if err := p.Sink().Replace(remembered, "7"); err != nil {
			t.Fatal(err)
		}
		var waiting []*corev1.PersistentVolumeClaim
		for _, name := range names {
			waiting = append(waiting, going(name, pvc.BarrierFinalizer))
		}
		batch := pvc.Settings{}.Take("ns", waiting)
		live := &fakePods{version: "9", page: 200, pods: pods}
		looker := NewLooker(p, live, time.Now, func(Reading) {})
		compared := batch.Look(func(namespace string, see func(*corev1.Pod)) error {
			return looker.everything(t.Context(), namespace, batch, see)
		})
		listed := batch.Look(func(namespace string, see func(*corev1.Pod)) error {
			return looker.list(t.Context(), namespace, see)
		})
		if live.full != 1 {
			t.Fatalf("%d lists of whole pods", live.full)
		}
		if diff := cmp.Diff(judged(listed), judged(compared)); diff != "" {
			t.Errorf("(-listed +compared)\n%s", diff)
		}
	})
}
