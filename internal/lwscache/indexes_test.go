package lwscache

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// informing are informers that the test fills.
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

// coming is a set whose groups exist in part: without leader, without StatefulSet, without pods,
// with foreign objects among them, and beside the workers of a set with a similar name.
func coming(t *testing.T) (*fakeapi.Server, *Observer, *lwsv1.LeaderWorkerSet) {
	t.Helper()
	store := fakeapi.New()
	if err := Index(context.Background(), store); err != nil {
		t.Fatal(err)
	}
	set := fakeapi.Add(store, fakeapi.Set("w", 40, 3))
	var leaders []*corev1.Pod
	for i := range 40 {
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
	return store, New(store.Cached(), store.Live(), NewMemory()), set
}

// indexed returns an observer of the same objects that reads indexes.
func (o *Observer) indexed(t *testing.T, store *fakeapi.Server) *Observer {
	t.Helper()
	caches := informing{store: store, informers: map[string]toolscache.SharedIndexInformer{}}
	indexes, err := NewIndexes(context.Background(), caches)
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
	return o.WithIndexes(indexes)
}

var byNames = cmpopts.SortSlices(func(a, b client.Object) bool { return a.GetName() < b.GetName() })

func TestIndexesReturnWhatListsReturn(t *testing.T) {
	store, o, set := coming(t)
	off := o.indexed(t, store)
	ctx, key := context.Background(), client.ObjectKeyFromObject(set)
	group := types.NamespacedName{Namespace: set.Namespace, Name: "w-1"}
	for name, read := range map[string]func(*Observer) ([]*corev1.Pod, error){
		"shown":      func(o *Observer) ([]*corev1.Pod, error) { return o.podsShown(ctx, key) },
		"settled":    func(o *Observer) ([]*corev1.Pod, error) { return o.podsSettled(ctx, key) },
		"one by one": func(o *Observer) ([]*corev1.Pod, error) { return o.podsOneByOne(ctx, group) },
	} {
		listed, err := read(o)
		if err != nil || len(listed) == 0 {
			t.Fatalf("invalid run: %d pods, %v", len(listed), err)
		}
		indexed, err := read(off)
		if diff := cmp.Diff(listed, indexed, byNames); err != nil || diff != "" {
			t.Errorf("%s: %v (-listed +indexed)\n%s", name, err, diff)
		}
	}
	listed, err := o.SetAs(ctx, set, store.Now)
	if err != nil {
		t.Fatal(err)
	}
	indexed, err := off.SetAs(ctx, set, store.Now)
	if diff := cmp.Diff(listed.Groups, indexed.Groups, byNames); err != nil || diff != "" {
		t.Errorf("%v (-listed +indexed)\n%s", err, diff)
	}
	if diff := cmp.Diff(listed.Vacant, indexed.Vacant, byNames); diff != "" {
		t.Errorf("(-listed +indexed)\n%s", diff)
	}
}

// A pod that this process deleted is not in its group, though the index still holds it.
func TestAGroupSeesItsOwnDeletions(t *testing.T) {
	store, o, set := coming(t)
	off := o.indexed(t, store)
	fakeapi.Drop[*corev1.Pod](store, "w-1-1")
	pods, err := off.podsOneByOne(context.Background(), types.NamespacedName{Namespace: set.Namespace, Name: "w-1"})
	if err != nil || len(pods) != 0 {
		t.Errorf("%d pods, %v", len(pods), err)
	}
}

func TestIndexesNeedAnIndexer(t *testing.T) {
	lists := informing{store: fakeapi.New(), informers: map[string]toolscache.SharedIndexInformer{}}
	if _, err := NewIndexes(context.Background(), notInMemory{lists}); err == nil || !strings.Contains(err.Error(), "holds no objects of its own") {
		t.Errorf("error %v", err)
	}
	if _, err := indexKeysOf(&lwsv1.LeaderWorkerSetList{}); err == nil {
		t.Error("a list has keys")
	}
}

// notInMemory is informers that only forward events.
type notInMemory struct{ informing }

func (n notInMemory) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return struct{ cache.Informer }{}, nil
}
