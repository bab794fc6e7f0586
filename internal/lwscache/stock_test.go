package lwscache

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

const stockedGroups = 40

// coming is a set whose groups are there in part: without leader, without
// StatefulSet, without pods, with ghosts and squatters among them, and beside the
// workers of a set whose name begins alike.
func coming(t *testing.T) (*fakeapi.Server, *Observer, *lwsv1.LeaderWorkerSet, []*corev1.Pod) {
	t.Helper()
	store := fakeapi.New()
	if err := Index(context.Background(), store); err != nil {
		t.Fatal(err)
	}
	set := fakeapi.Add(store, fakeapi.Set("w", stockedGroups, 3))
	var leaders []*corev1.Pod
	for i := range stockedGroups {
		name := identity.LeaderName("w", i)
		if i%5 != 0 {
			leaders = append(leaders, fakeapi.Add(store, fakeapi.Pod(name, "w", 0)))
		}
		if i%3 != 0 {
			sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name, Labels: map[string]string{lwsv1.SetNameLabelKey: "w"}}}
			if i%5 != 0 {
				fakeapi.OwnedBy(sts, "v1", identity.RefOf(identity.KindPod, leaders[len(leaders)-1]))
			}
			sts.Spec.Replicas = fakeapi.Ptr[int32](2)
			sts.Status.Replicas = int32(i % 3)
			fakeapi.Add(store, sts)
		}
		if i%4 != 0 {
			fakeapi.Add(store, fakeapi.Pod(name+"-1", "w", 1))
			fakeapi.Add(store, fakeapi.Pod(name+"-1-1", "w-0", 1))
		}
	}
	memory := NewMemory(store.Now)
	return store, New(store.Cached(), store.Live(), memory).at(store.Now), set, leaders
}

// parts is what was found of a set's groups.
type parts struct{ Groups, Vacant []lws.Group }

func (o *Observer) parts(t *testing.T, set *lwsv1.LeaderWorkerSet, leaders []*corev1.Pod) (p parts) {
	t.Helper()
	j := o.judge()
	var err error
	if p.Groups, err = o.groups(context.Background(), j, set, leaders); err != nil {
		t.Fatal(err)
	}
	if p.Vacant, err = o.vacant(context.Background(), j, set, leaders); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAStockTellsWhatReadingOneByOneTells(t *testing.T) {
	_, o, set, leaders := coming(t)
	one := o.parts(t, set, leaders)
	if len(one.Groups) == 0 || len(one.Vacant) == 0 {
		t.Fatalf("invalid run: %d groups, %d without leader", len(one.Groups), len(one.Vacant))
	}
	key := types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
	for _, groups := range []int{stockedGroups, 0} { // with pods, and without
		look, err := o.stocked(context.Background(), key, groups)
		if err != nil {
			t.Fatal(err)
		}
		if (look.stock.pods != nil) != (groups > 0) {
			t.Errorf("%d groups: pods read: %t", groups, look.stock.pods != nil)
		}
		if diff := cmp.Diff(one, look.parts(t, set, leaders)); diff != "" {
			t.Errorf("%d groups (-one by one +stocked)\n%s", groups, diff)
		}
	}
}

// A set that comes used to be read twice for each of its groups with every look.
func TestALookAtALargeSetReadsItAtOnce(t *testing.T) {
	store, _, set, _ := coming(t)
	reads := func(groups int32) int {
		fakeapi.Edit(store, "w", func(set *lwsv1.LeaderWorkerSet) { set.Spec.Replicas = &groups })
		cached := store.Cached()
		o := New(cached, store.Live(), NewMemory(store.Now))
		if _, err := o.Set(context.Background(), types.NamespacedName{Namespace: set.Namespace, Name: set.Name}, store.Now); err != nil {
			t.Fatal(err)
		}
		return cached.Reads
	}
	if few, many := reads(stockedGroups), reads(100*stockedGroups); few != many {
		t.Errorf("%d reads beside %d groups, %d beside %d", few, stockedGroups, many, 100*stockedGroups)
	}
}

func TestAStockKnowsOnlyItsOwnSet(t *testing.T) {
	s := &stock{set: types.NamespacedName{Namespace: "ns", Name: "w"}}
	for name, want := range map[string]bool{"w-0": true, "w-12": true, "w": false, "w-0-1": false, "v-0": false, "w-007": false, "w-x": false} {
		for _, namespace := range []string{"ns", "other"} {
			if got := s.has(types.NamespacedName{Namespace: namespace, Name: name}); got != (want && namespace == "ns") {
				t.Errorf("%s/%s: %t", namespace, name, got)
			}
		}
	}
}
