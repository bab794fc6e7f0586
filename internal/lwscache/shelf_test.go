package lwscache

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
)

// informing is informers that nothing fills but the test.
type informing struct {
	cache.Informers
	store     *fakeapi.Server
	informers map[string]toolscache.SharedIndexInformer
}

func (i informing) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	kind := string(fakeapi.KindOf(object))
	if i.informers[kind] == nil {
		i.informers[kind] = toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, object.(runtime.Object), 0, toolscache.Indexers{})
	}
	return i.informers[kind], nil
}

func (i informing) IndexField(ctx context.Context, object client.Object, field string, keys client.IndexerFunc) error {
	return i.store.IndexField(ctx, object, field, keys)
}

// shelved is an observer of the same store that reads off shelves.
func (o *Observer) shelved(t *testing.T, store *fakeapi.Server) *Observer {
	t.Helper()
	caches := informing{store: store, informers: map[string]toolscache.SharedIndexInformer{}}
	shelves, err := NewShelves(context.Background(), caches)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range store.Objects {
		if informer := caches.informers[string(fakeapi.KindOf(object))]; informer != nil {
			if err := informer.GetIndexer().Add(object); err != nil {
				t.Fatal(err)
			}
		}
	}
	return o.WithShelves(shelves)
}

var byNames = cmpopts.SortSlices(func(a, b client.Object) bool { return a.GetName() < b.GetName() })

func TestShelvesShowWhatListsDo(t *testing.T) {
	store, o, set, leaders := coming(t)
	off := o.shelved(t, store)
	ctx, key := context.Background(), types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
	pods := func(read func(*Observer, types.NamespacedName) ([]*corev1.Pod, error), of types.NamespacedName) {
		t.Helper()
		listed, err := read(o, of)
		if err != nil || len(listed) == 0 {
			t.Fatalf("invalid run: %d pods, %v", len(listed), err)
		}
		taken, err := read(off, of)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(listed, taken, byNames); diff != "" {
			t.Errorf("(-listed +off the shelf)\n%s", diff)
		}
	}
	group := types.NamespacedName{Namespace: set.Namespace, Name: "w-1"}
	pods(func(o *Observer, of types.NamespacedName) ([]*corev1.Pod, error) { return o.podsShown(ctx, of) }, key)
	pods(func(o *Observer, of types.NamespacedName) ([]*corev1.Pod, error) { return o.podsSettled(ctx, of) }, key)
	pods(func(o *Observer, of types.NamespacedName) ([]*corev1.Pod, error) { return o.podsOneByOne(ctx, of) }, group)
	pods(func(o *Observer, of types.NamespacedName) ([]*corev1.Pod, error) { return o.workersBeneath(ctx, of) }, key)
	if diff := cmp.Diff(o.parts(t, set, leaders), off.parts(t, set, leaders), byNames); diff != "" {
		t.Errorf("(-listed +off the shelf)\n%s", diff)
	}
	beneath, err := off.statefulSetsBeneath(ctx, key)
	if err != nil || len(beneath) == 0 || beneath[0] != store.Objects[fakeapi.NameOf(beneath[0])].(*appsv1.StatefulSet) {
		t.Errorf("%d StatefulSets, the cache's own: %v", len(beneath), err)
	}
}

// A pod that the cache of the client shows no more, since this process deleted it, is
// none of the group's, though the shelf still has it.
func TestAGroupSeesItsOwnDeletions(t *testing.T) {
	store, o, set, _ := coming(t)
	off := o.shelved(t, store)
	group := types.NamespacedName{Namespace: set.Namespace, Name: "w-1"}
	fakeapi.Drop[*corev1.Pod](store, "w-1-1")
	pods, err := off.podsOneByOne(context.Background(), group)
	if err != nil || len(pods) != 0 {
		t.Errorf("%d pods, %v", len(pods), err)
	}
}

func TestShelvesAreOfWhatIsInMemory(t *testing.T) {
	lists := informing{store: fakeapi.New(), informers: map[string]toolscache.SharedIndexInformer{}}
	if _, err := NewShelves(context.Background(), notInMemory{lists}); err == nil || !strings.Contains(err.Error(), "holds no objects of its own") {
		t.Errorf("error %v", err)
	}
	if _, err := shelfKeys(&lwsv1.LeaderWorkerSetList{}); err == nil {
		t.Error("a list has a place on a shelf")
	}
}

// notInMemory is informers that only forward events.
type notInMemory struct{ informing }

func (n notInMemory) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return struct{ cache.Informer }{}, nil
}
