package cluster

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// record is what was seen of one incarnation of an object.
type record struct {
	kind   string
	last   client.Object // never written to
	owners []types.UID   // every controller it has had
	born   int           // the change with which it was first seen
	doomed int           // the change with which it was on its way out, 0 before
	died   int           // the change with which it went, 0 while it is there
	gone   time.Time
}

// recorder watches one namespace and forgets nothing. Changes are numbered as they arrive. Kinds are
// watched apart, so only changes of one kind arrive in order.
type recorder struct {
	mu      sync.Mutex
	count   int // changes so far, events not counted
	records map[types.UID]*record
	synced  map[string]bool
	wake    chan struct{} // closed with the next change
}

// watched are the recorded kinds.
var watched = []client.ObjectList{
	&lwsv1.LeaderWorkerSetList{}, &appsv1.StatefulSetList{}, &appsv1.ControllerRevisionList{},
	&corev1.ServiceList{}, &corev1.PodList{}, &eventsv1.EventList{},
}

// startRecorder records until ctx ends. It returns when all kinds are watched.
func startRecorder(ctx context.Context, c client.WithWatch, namespace string) (*recorder, error) {
	r := &recorder{records: map[types.UID]*record{}, synced: map[string]bool{}, wake: make(chan struct{})}
	for _, list := range watched {
		kind := strings.TrimSuffix(reflect.TypeOf(list).Elem().Name(), "List")
		source := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				out := list.DeepCopyObject().(client.ObjectList)
				return out, c.List(ctx, out, &client.ListOptions{Namespace: namespace, Raw: &o})
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				empty := list.DeepCopyObject().(client.ObjectList)
				return c.Watch(ctx, empty, &client.ListOptions{Namespace: namespace, Raw: &o})
			},
		}
		again := &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1, Steps: 1}
		reflector := cache.NewReflectorWithOptions(source, nil, shelf{r, kind}, cache.ReflectorOptions{Name: kind, Backoff: again})
		go reflector.RunWithContext(ctx)
	}
	return r, r.awaitSync(ctx)
}

func (r *recorder) awaitSync(ctx context.Context) error {
	deadline := time.After(patience)
	for {
		next := r.next()
		r.mu.Lock()
		done := len(r.synced) == len(watched)
		r.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-next:
		case <-deadline:
			return fmt.Errorf("not all kinds can be watched")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// shelf is the recorder as the store of one reflector.
type shelf struct {
	*recorder
	kind string
}

func (s shelf) Add(o any) error    { s.see(s.kind, o.(client.Object)); return nil }
func (s shelf) Update(o any) error { s.see(s.kind, o.(client.Object)); return nil }
func (s shelf) Delete(o any) error { s.lose(s.kind, o.(client.Object)); return nil }
func (s shelf) Resync() error      { return nil }

// Replace is called with each list. Objects that are missing from it are gone.
func (s shelf) Replace(objects []any, _ string) error {
	there := map[types.UID]bool{}
	for _, o := range objects {
		there[o.(client.Object).GetUID()] = true
		s.see(s.kind, o.(client.Object))
	}
	for _, old := range s.pick(func(r *record) bool { return r.kind == s.kind && r.died == 0 }) {
		if !there[old.last.GetUID()] {
			s.lose(s.kind, old.last)
		}
	}
	s.mu.Lock()
	s.synced[s.kind] = true
	s.mu.Unlock()
	s.tell()
	return nil
}

func (r *recorder) see(kind string, o client.Object) {
	o.SetManagedFields(nil)
	r.mu.Lock()
	if kind != "Event" {
		r.count++
	}
	rec, known := r.records[o.GetUID()]
	if !known {
		rec = &record{kind: kind, born: r.count}
		r.records[o.GetUID()] = rec
	}
	rec.last = o
	if rec.doomed == 0 && o.GetDeletionTimestamp() != nil {
		rec.doomed = r.count
	}
	if owner := metav1.GetControllerOf(o); owner != nil && !slices.Contains(rec.owners, owner.UID) {
		rec.owners = append(rec.owners, owner.UID)
	}
	r.mu.Unlock()
	r.tell()
}

func (r *recorder) lose(kind string, o client.Object) {
	r.mu.Lock()
	if kind != "Event" {
		r.count++
	}
	if rec, known := r.records[o.GetUID()]; known && rec.died == 0 {
		rec.died, rec.gone = r.count, time.Now()
	}
	r.mu.Unlock()
	r.tell()
}

// tell wakes all goroutines that wait for a change.
func (r *recorder) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.wake)
	r.wake = make(chan struct{})
}

// next returns a channel that is closed with the next change. Without a recorder it blocks.
func (r *recorder) next() <-chan struct{} {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wake
}

// changes returns the number of changes so far.
func (r *recorder) changes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// pick returns copies of matching records, ordered by kind and name.
func (r *recorder) pick(match func(*record) bool) []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []record
	for _, rec := range r.records {
		if match(rec) {
			found = append(found, *rec)
		}
	}
	slices.SortFunc(found, func(a, b record) int {
		return strings.Compare(a.kind+"/"+a.last.GetName(), b.kind+"/"+b.last.GetName())
	})
	return found
}

// live returns the objects of one type that exist, ordered by name.
func live[T client.Object](r *recorder) []T {
	var found []T
	for _, rec := range r.pick(func(rec *record) bool { _, ok := rec.last.(T); return ok && rec.died == 0 }) {
		found = append(found, rec.last.(T))
	}
	return found
}

// find returns the object of one type and name.
func find[T client.Object](r *recorder, name string) (found T, ok bool) {
	for _, o := range live[T](r) {
		if o.GetName() == name {
			return o, true
		}
	}
	return found, false
}
