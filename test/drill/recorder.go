package drill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Record is the history of one incarnation of an object.
type Record struct {
	Kind    string
	Last    client.Object // never written to
	Owners  []types.UID   // all controllers so far
	Born    int           // number of the change that created it
	Bound   int           // number of the change that gave a pod its node, or 0
	Deleted int           // number of the change that set its deletion timestamp, or 0
	Died    int           // number of the change that removed it, or 0
	Gone    time.Time
}

// Recorder watches one namespace and keeps all incarnations. It numbers changes as they arrive. Each
// kind has a watch of its own, so only changes of one kind arrive in order.
type Recorder struct {
	mu      sync.Mutex
	count   int // changes so far, events not counted
	records map[types.UID]*Record
	wake    chan struct{} // closed with the next change
}

// recorded is the kinds that a recorder watches.
var recorded = []client.ObjectList{
	&lwsv1.LeaderWorkerSetList{}, &appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSetList{},
	&appsv1.ControllerRevisionList{}, &corev1.ServiceList{}, &corev1.PodList{}, &eventsv1.EventList{},
}

// record records until ctx ends. It returns when all kinds are watched.
func record(ctx context.Context, c client.WithWatch, namespace string) (*Recorder, error) {
	r := &Recorder{records: map[types.UID]*Record{}, wake: make(chan struct{})}
	kinds := recorded
	if _, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: dsv1.GroupVersion.Group, Kind: "DisaggregatedSet"}); err == nil { // an earlier version has none
		kinds = slices.Concat(kinds, []client.ObjectList{&dsv1.DisaggregatedSetList{}, &dsv1.DisaggregatedSetRoleScalerList{}})
	}
	return r, watchAll(ctx, c, namespace, kinds, r.see)
}

// Watch calls see with each object of some kinds in a namespace, and with there false when it is
// gone, until ctx ends. It returns when all kinds were listed. After a lost watch it lists again:
// an object that the list lacks is gone.
func Watch(ctx context.Context, c client.WithWatch, namespace string, kinds []client.ObjectList, see func(o client.Object, there bool)) error {
	return watchAll(ctx, c, namespace, kinds, func(changes []change) {
		for _, one := range changes {
			see(one.Object, one.isThere)
		}
	})
}

// change is an object as it is, or as it was last.
type change struct {
	client.Object
	isThere bool
}

// watchAll is Watch that calls see once with all that a list changes: what replaced a pod does not stand beside it.
func watchAll(ctx context.Context, c client.WithWatch, namespace string, kinds []client.ObjectList, see func(changes []change)) error {
	var listed []*shelf
	for _, list := range kinds {
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
		s := &shelf{see: see, there: map[types.UID]client.Object{}, synced: make(chan struct{})}
		again := &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1, Steps: 1}
		go cache.NewReflectorWithOptions(source, nil, s, cache.ReflectorOptions{Backoff: again}).RunWithContext(ctx)
		listed = append(listed, s)
	}
	deadline := time.After(Patience)
	for _, s := range listed {
		select {
		case <-s.synced:
		case <-deadline:
			return fmt.Errorf("timeout: not all kinds in namespace %s were listed", namespace)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// shelf is the store of one reflector.
type shelf struct {
	see    func([]change)
	there  map[types.UID]client.Object
	once   sync.Once
	synced chan struct{} // closed with the first list
}

func (s *shelf) Add(o any) error {
	object := o.(client.Object)
	s.there[object.GetUID()] = object
	s.see([]change{{object, true}})
	return nil
}

func (s *shelf) Update(o any) error { return s.Add(o) }
func (s *shelf) Resync() error      { return nil }

func (s *shelf) Delete(o any) error {
	delete(s.there, o.(client.Object).GetUID())
	s.see([]change{{o.(client.Object), false}})
	return nil
}

// Replace is called with each list.
func (s *shelf) Replace(objects []any, _ string) error {
	gone := s.there
	s.there = map[types.UID]client.Object{}
	var changes []change
	for _, o := range objects {
		object := o.(client.Object)
		delete(gone, object.GetUID())
		s.there[object.GetUID()] = object
		changes = append(changes, change{object, true})
	}
	for _, o := range gone {
		changes = append(changes, change{o, false})
	}
	s.see(changes)
	s.once.Do(func() { close(s.synced) })
	return nil
}

func (r *Recorder) see(changes []change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range changes {
		r.note(one.Object, one.isThere)
	}
	close(r.wake)
	r.wake = make(chan struct{})
}

func (r *Recorder) note(o client.Object, there bool) {
	o.SetManagedFields(nil)
	kind := fmt.Sprintf("%T", o)
	kind = kind[strings.LastIndex(kind, ".")+1:]
	if kind != "Event" {
		r.count++
	}
	rec, known := r.records[o.GetUID()]
	if !known {
		rec = &Record{Kind: kind, Born: r.count}
		r.records[o.GetUID()] = rec
	}
	rec.Last = o
	if pod, ok := o.(*corev1.Pod); ok && rec.Bound == 0 && pod.Spec.NodeName != "" {
		rec.Bound = r.count
	}
	if rec.Deleted == 0 && o.GetDeletionTimestamp() != nil {
		rec.Deleted = r.count
	}
	if owner := metav1.GetControllerOf(o); owner != nil && !slices.Contains(rec.Owners, owner.UID) {
		rec.Owners = append(rec.Owners, owner.UID)
	}
	if !there {
		rec.Died, rec.Gone = r.count, time.Now()
	}
}

// Next returns a channel that is closed with the next change. Without a recorder it blocks.
func (r *Recorder) Next() <-chan struct{} {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wake
}

// Changes returns the number of changes so far.
func (r *Recorder) Changes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Pick returns copies of matching records, ordered by kind and name.
func (r *Recorder) Pick(match func(*Record) bool) []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Record
	for _, rec := range r.records {
		if match(rec) {
			found = append(found, *rec)
		}
	}
	slices.SortFunc(found, func(a, b Record) int {
		return strings.Compare(a.Kind+"/"+a.Last.GetName(), b.Kind+"/"+b.Last.GetName())
	})
	return found
}

// Of returns the record of one incarnation, empty if it was not seen.
func (r *Recorder) Of(uid types.UID) Record {
	for _, rec := range r.Pick(func(rec *Record) bool { return rec.Last.GetUID() == uid }) {
		return rec
	}
	return Record{}
}

// Live returns the existing objects of one type, ordered by name.
func Live[T client.Object](r *Recorder) []T {
	var found []T
	for _, rec := range r.Pick(func(rec *Record) bool { _, ok := rec.Last.(T); return ok && rec.Died == 0 }) {
		found = append(found, rec.Last.(T))
	}
	return found
}

// Find returns the existing object of one type and name.
func Find[T client.Object](r *Recorder, name string) (found T, ok bool) {
	for _, o := range Live[T](r) {
		if o.GetName() == name {
			return o, true
		}
	}
	return found, false
}

// Root follows the controllers by UID to the end of the chain, through deleted objects. An object that
// was created for a deleted owner ends the chain: the StatefulSet controller does that from a late cache.
func (r *Recorder) Root(uid types.UID) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		rec, known := r.records[uid]
		if !known {
			return uid
		}
		owner := metav1.GetControllerOf(rec.Last)
		if owner == nil {
			return uid
		}
		uid = owner.UID
		if above, known := r.records[uid]; known && above.Died > 0 && above.Died < rec.Born {
			return uid
		}
	}
}

// Now returns an object as last seen, or nil if it is gone.
func (r *Recorder) Now(o client.Object) client.Object {
	if rec := r.Of(o.GetUID()); rec.Died == 0 {
		return rec.Last
	}
	return nil
}

// Pod returns the pod of a name, or nil.
func (r *Recorder) Pod(name string) *corev1.Pod { pod, _ := Find[*corev1.Pod](r, name); return pod }

// Pods returns all pods.
func (r *Recorder) Pods() []*corev1.Pod { return Live[*corev1.Pod](r) }

// StatefulSet returns the StatefulSet of a name, or nil.
func (r *Recorder) StatefulSet(name string) *appsv1.StatefulSet {
	sts, _ := Find[*appsv1.StatefulSet](r, name)
	return sts
}

// StatefulSets returns all StatefulSets.
func (r *Recorder) StatefulSets() []*appsv1.StatefulSet { return Live[*appsv1.StatefulSet](r) }

// Service returns the Service of a name, or nil.
func (r *Recorder) Service(name string) *corev1.Service {
	service, _ := Find[*corev1.Service](r, name)
	return service
}

// Set returns the LeaderWorkerSet of a name, or nil.
func (r *Recorder) Set(name string) *lwsv1.LeaderWorkerSet {
	set, _ := Find[*lwsv1.LeaderWorkerSet](r, name)
	return set
}

// UIDs returns the UIDs of the pods that do not terminate, by name.
func (r *Recorder) UIDs() map[string]types.UID {
	found := map[string]types.UID{}
	for _, pod := range r.Pods() {
		if pod.DeletionTimestamp == nil {
			found[pod.Name] = pod.UID
		}
	}
	return found
}
