package pvccache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/pvc"
)

// A set that was deleted alone and made again takes its leader StatefulSet over, with
// claims that were given to that before the set was made. Somebody deletes it: the set
// lives, and wants them. A StatefulSet that was never the set's is of a former life.
func TestTheClaimsOfAStatefulSetThatASetTookOverAreItsOwn(t *testing.T) {
	made := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	set := func(life string, at time.Time) *lwsv1.LeaderWorkerSet {
		groups := int32(1)
		set := &lwsv1.LeaderWorkerSet{ObjectMeta: named("lws", "llama", nil, "")}
		set.UID, set.CreationTimestamp = types.UID(life), metav1.NewTime(at)
		set.Spec.Replicas = &groups
		set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		return set
	}
	former, lives := set("life-1", made.Add(-time.Hour)), set("life-2", made)
	owned := func(owner *lwsv1.LeaderWorkerSet) *workload {
		var controller metav1.Object
		if owner != nil {
			controller = owner
		}
		leaders := statefulSetOf(named("sts", "llama", controller, "LeaderWorkerSet"), 1)
		leaders.UID = "leaders"
		return reduced(t, leaders)
	}
	for name, tt := range map[string]struct {
		lives []*workload
		born  time.Time
		want  bool
	}{
		"taken over":                            {[]*workload{owned(former), owned(nil), owned(lives)}, made.Add(-time.Hour), true},
		"taken over, and taken off it":          {[]*workload{owned(former), owned(nil), owned(lives), owned(nil)}, made.Add(-time.Hour), true},
		"never taken over":                      {[]*workload{owned(former)}, made.Add(-time.Hour), false},
		"never taken over, in one second":       {[]*workload{owned(former)}, made, false},
		"never taken over, made since by it":    {[]*workload{owned(former)}, made.Add(time.Minute), true},
		"never taken over, but left alone":      {[]*workload{owned(former), owned(nil)}, made.Add(-time.Hour), false},
		"not seen, and given away before":       {nil, made.Add(-time.Hour), false},
		"never any set's, given away before":    {[]*workload{owned(nil)}, made.Add(-time.Hour), false},
		"another's before it was the set's":     {[]*workload{owned(set("other", made)), owned(lives)}, made.Add(-time.Hour), true},
		"another's after it had been the set's": {[]*workload{owned(lives), owned(set("other", made))}, made.Add(-time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			claim := noted("c", "leaders", tt.born.Add(time.Minute))
			claim.CreationTimestamp = metav1.NewTime(tt.born)
			claims := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if into, ok := o.(*corev1.PersistentVolumeClaim); ok {
						claim.DeepCopyInto(into)
						return nil
					}
					return c.Get(ctx, key, o, options...)
				},
			}).Build()
			d := emptyDesired(t)
			d.put(t, lives)
			for i, is := range tt.lives {
				var was *workload
				if i > 0 {
					was = tt.lives[i-1]
				}
				d.tell(was, is)
			}
			if len(tt.lives) > 0 {
				d.tell(tt.lives[len(tt.lives)-1], nil)
			}
			h := NewHolds(nil, NewClaims(claims, claims), NewPods(), d, pvc.Settings{Mode: pvc.Hold}, time.Minute)
			view, err := h.View(t.Context(), types.NamespacedName{Namespace: "ns", Name: "data-llama-0"}, made.Add(2*time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			view.Unread = ""
			live := stillWithout(view.World, view.World)
			for from, world := range map[string]pvc.World{"memory": view.World, "a look": live} {
				holders, _ := world.Holders(claim)
				if held := len(holders) > 0; held != tt.want {
					t.Errorf("from %s: held is %t, want %t", from, held, tt.want)
				}
			}
		})
	}
}

// Memory shows that a StatefulSet is gone before anybody is told of it, and of what came
// before: who looks meanwhile must not take the set that took it over for a stranger.
func TestWhoTookAStatefulSetOverIsKnownBeforeMemoryShowsThatItIsGone(t *testing.T) {
	d := emptyDesired(t)
	leaders := func(owner types.UID) *appsv1.StatefulSet {
		sts := statefulSetOf(named("sts", "llama", nil, ""), 1)
		sts.UID = "leaders"
		if owner != "" {
			sts.OwnerReferences = []metav1.OwnerReference{{APIVersion: lwsv1.GroupVersion.String(), Kind: "LeaderWorkerSet", Name: "llama", UID: owner, Controller: new(true)}}
		}
		return sts
	}
	source := watch.NewFake()
	informer, err := d.informer(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &appsv1.StatefulSetList{Items: []appsv1.StatefulSet{*leaders("life-1")}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, errors.New("not served")
			}
			return source, nil
		},
	}, &appsv1.StatefulSet{}, builtIn)
	if err != nil {
		t.Fatal(err)
	}
	busy := make(chan struct{})
	defer close(busy)
	d.Follow(func(Wanting) { <-busy })
	go informer.RunWithContext(t.Context())
	source.Modify(leaders(""))
	source.Modify(leaders("life-2"))
	source.Delete(leaders("life-2"))
	for len(informer.GetStore().List()) > 0 || !informer.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	if was := d.lineage.of("leaders"); !slices.Contains(was, "life-2") {
		t.Errorf("it belonged to %v", was)
	}
}

// However many StatefulSets come and go, and whoever they are given to, no more is
// remembered than is worth it.
func TestWhatIsRememberedOfStatefulSetsIsBounded(t *testing.T) {
	l := newLineage()
	was := func(uid, owner int) *workload {
		set := &lwsv1.LeaderWorkerSet{ObjectMeta: named("lws", "llama", nil, "")}
		set.UID = types.UID(fmt.Sprint("set-", owner))
		sts := &appsv1.StatefulSet{ObjectMeta: named("sts", "llama", set, "LeaderWorkerSet")}
		sts.UID = types.UID(fmt.Sprint("sts-", uid))
		return reduced(t, sts)
	}
	for i := range 2 * keptLineages {
		l.note(was(i, 0), nil)
	}
	if kept := l.sets.Len(); kept != keptLineages {
		t.Errorf("%d are remembered", kept)
	}
	for i := range 2 * mostSets {
		l.note(was(0, i), was(0, i+1))
	}
	if sets := l.of("sts-0"); len(sets) != mostSets || sets[mostSets-1] != types.UID(fmt.Sprint("set-", 2*mostSets-1)) {
		t.Errorf("of one %v are remembered, and not the one that it came to last", sets)
	}
	l.note(was(0, 0), was(0, 1))
	if sets := l.of("sts-0"); len(sets) != mostSets || sets[mostSets-1] != "set-0" {
		t.Errorf("of one %v are remembered", sets)
	}
}
