// Package fakeapi is an API server in memory, for tests that drive production code.
//
// It knows UIDs, resourceVersions, generations, preconditions, finalizers, merge patches and server-side apply, as far
// as the operator uses them. Control adds the StatefulSet controller, the garbage collector and a kubelet; Set and Pod
// build objects. It refuses to know which write is right, and runs nothing on its own.
//
// The fake client of controller-runtime has no UIDs, generations, UID preconditions, propagation of deletions, grace
// periods and caches that lag. The laws of internal/lws could not run on it: a list of twelve pods takes 9 times as long,
// and a patch 33 times.
package fakeapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// Namespace is the namespace of objects that tests find by name alone.
const Namespace = "ns"

// Epoch is the time of a new server.
var Epoch = time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)

// Name is one name of one kind.
type Name struct {
	Kind      identity.Kind
	Namespace string
	Name      string
}

// Objects are stored by name. A write replaces an object, and never changes it.
type Objects map[Name]client.Object

// Server stores objects and answers requests. Time stands still unless a test sets Now.
type Server struct {
	Objects
	// Now is the time of creation and deletion timestamps.
	Now time.Time
	// WithoutMaxUnavailable drops the maxUnavailable of StatefulSets, as a server does
	// when its feature gate is off.
	WithoutMaxUnavailable bool
	// Webhook, when set, may change an object that is created, applied or patched.
	Webhook func(client.Object)
	// Changed, when set, is called with every change, as a watch reports it.
	Changed func(watch.EventType, client.Object)
	// Added, when set, is called with every object added.
	Added func(client.Object)

	// Refuse, when set, may refuse a write.
	Refuse func(Request) error
	// Requests are all writes, also refused ones, in order.
	Requests []Request

	client.Client // panics in the verbs that no test uses

	writes  sync.Mutex
	applied map[string][]byte // by UID and field owner
	serial  int
	indexes map[identity.Kind]map[string]client.IndexerFunc
}

// New returns an empty server at Epoch.
func New() *Server {
	return &Server{
		Objects: Objects{},
		Now:     Epoch,
		applied: map[string][]byte{},
		indexes: map[identity.Kind]map[string]client.IndexerFunc{},
	}
}

// Add stores a copy of an object and returns it. It sets the resourceVersion, and the UID, the
// creation time and the generation if they are missing.
func Add[T client.Object](s *Server, object T) T {
	added, _ := object.DeepCopyObject().(T)
	if added.GetUID() == "" {
		added.SetUID(types.UID(fmt.Sprintf("%s-%d", added.GetName(), s.next())))
	}
	if created := added.GetCreationTimestamp(); created.IsZero() {
		added.SetCreationTimestamp(metav1.NewTime(s.Now))
	}
	if added.GetGeneration() == 0 {
		added.SetGeneration(1)
	}
	s.Put(added)
	if s.Added != nil {
		s.Added(added)
	}
	return added
}

// Edit replaces the object of a name by a changed copy and returns it. It leaves the
// generation to change.
func Edit[T client.Object](s *Server, name string, change func(T)) T {
	var none T
	found, ok := s.Objects[Name{Kind: KindOf(none), Namespace: Namespace, Name: name}].(T)
	if !ok {
		panic(fmt.Sprintf("no %s %q to edit", KindOf(none), name))
	}
	edited, _ := found.DeepCopyObject().(T)
	change(edited)
	s.Put(edited)
	return edited
}

// Find returns the object of a name, or nil.
func Find[T client.Object](s *Server, name string) T {
	var none T
	found, _ := s.Objects[Name{Kind: KindOf(none), Namespace: Namespace, Name: name}].(T)
	return found
}

// All returns every object of a type in the order of their names and kinds.
func All[T client.Object](objects Objects) []T {
	var all []T
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			all = append(all, typed)
		}
	}
	slices.SortFunc(all, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(KindOf(a), KindOf(b)))
	})
	return all
}

// Drop removes the object of a name at once, without an event, whatever its finalizers.
func Drop[T client.Object](s *Server, name string) {
	var none T
	delete(s.Objects, Name{Kind: KindOf(none), Namespace: Namespace, Name: name})
}

// Terminate sets the deletion timestamp and the finalizers of the object of a name.
func Terminate[T client.Object](s *Server, name string, finalizers ...string) T {
	return Edit(s, name, func(object T) {
		object.SetDeletionTimestamp(&metav1.Time{Time: s.Now})
		object.SetFinalizers(finalizers)
	})
}

// Put stores object in place of the one with its name.
func (s *Server) Put(object client.Object) {
	how := watch.Modified
	if s.Objects[NameOf(object)] == nil {
		how = watch.Added
	}
	object.SetResourceVersion(s.Version())
	s.Objects[NameOf(object)] = object
	s.changed(how, object)
}

// Erase removes an object at once, with an event, whatever its finalizers.
func (s *Server) Erase(object client.Object) {
	last, _ := object.DeepCopyObject().(client.Object)
	last.SetResourceVersion(s.Version())
	delete(s.Objects, NameOf(object))
	s.changed(watch.Deleted, last)
}

func (s *Server) changed(how watch.EventType, object client.Object) {
	if s.Changed != nil {
		s.Changed(how, object)
	}
}

// Version returns a resourceVersion that no object has yet.
func (s *Server) Version() string { return strconv.Itoa(s.next()) }

func (s *Server) next() int {
	s.serial++
	return s.serial
}

// IndexField implements client.FieldIndexer.
func (s *Server) IndexField(_ context.Context, object client.Object, field string, keys client.IndexerFunc) error {
	kind := KindOf(object)
	if s.indexes[kind] == nil {
		s.indexes[kind] = map[string]client.IndexerFunc{}
	}
	s.indexes[kind][field] = keys
	return nil
}

// Live reads the store itself.
func (s *Server) Live() *Reader { return &Reader{store: s, objects: s.Objects} }

// Cached reads what a cache without delay shows.
func (s *Server) Cached() *Reader {
	return &Reader{store: s, objects: s.Objects, labelled: true}
}

// Lagging reads the state in which Deliver last left each kind.
func (s *Server) Lagging() *Reader {
	return &Reader{store: s, objects: maps.Clone(s.Objects), labelled: true}
}

// Whole makes the reader show what bears the label of no set, too.
func (r *Reader) Whole() *Reader {
	r.labelled = false
	return r
}

// Reader is a client.Reader that returns shared objects, as our caches do.
type Reader struct {
	// Reads counts the calls of Get.
	Reads int
	// Fail, when set, may refuse a read.
	Fail func(Name) error
	// Trim, when set, drops of a copy what a cache does not keep.
	Trim func(client.Object)

	trimmed  map[client.Object]client.Object
	store    *Server
	objects  Objects
	labelled bool
}

// Deliver updates the reader's objects of a kind.
func (r *Reader) Deliver(kind identity.Kind) {
	maps.DeleteFunc(r.objects, func(n Name, _ client.Object) bool { return n.Kind == kind })
	for n, object := range r.store.Objects {
		if n.Kind == kind {
			r.objects[n] = object
		}
	}
}

func (r *Reader) shows(object client.Object) bool {
	_, labelled := object.GetLabels()[lwsv1.SetNameLabelKey]
	return labelled || !r.labelled || slices.Contains([]identity.Kind{identity.KindLeaderWorkerSet, identity.KindPodDisruptionBudget}, KindOf(object))
}

// kept is an object as a cache keeps it.
func (r *Reader) kept(object client.Object) client.Object {
	if r.Trim == nil {
		return object
	}
	kept := r.trimmed[object]
	if kept == nil {
		kept = object.DeepCopyObject().(client.Object)
		r.Trim(kept)
		if r.trimmed == nil {
			r.trimmed = map[client.Object]client.Object{}
		}
		r.trimmed[object] = kept
	}
	return kept
}

// Get implements client.Reader.
func (r *Reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	n := Name{Kind: KindOf(into), Namespace: key.Namespace, Name: key.Name}
	r.Reads++
	if r.Fail != nil {
		if err := r.Fail(n); err != nil {
			return err
		}
	}
	found, ok := r.objects[n]
	if !ok || !r.shows(found) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: string(n.Kind)}, n.Name)
	}
	return share(r.kept(found), into)
}

// share copies the stored object into into; the two share what they point to.
func share(stored, into client.Object) error {
	switch into := into.(type) {
	case *metav1.PartialObjectMetadata:
		if foreign, ok := stored.(*unstructured.Unstructured); ok {
			return runtime.DefaultUnstructuredConverter.FromUnstructured(foreign.Object, into)
		}
		meta := reflect.ValueOf(stored).Elem().FieldByName("ObjectMeta").Interface()
		into.ObjectMeta, _ = meta.(metav1.ObjectMeta)
	default:
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(stored).Elem())
	}
	return nil
}

// List implements client.Reader.
func (r *Reader) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	_, metadata := into.(*metav1.PartialObjectMetadataList)
	kind := KindOf(into)
	if told := into.GetObjectKind().GroupVersionKind().Kind; told != "" { // of metadata, and of what has no type
		kind = identity.Kind(told)
	}
	kind = identity.Kind(strings.TrimSuffix(string(kind), "List"))
	if r.Fail != nil {
		if err := r.Fail(Name{Kind: kind}); err != nil {
			return err
		}
	}
	var items []runtime.Object
	for _, object := range All[client.Object](r.objects) {
		if KindOf(object) != kind || o.Namespace != "" && object.GetNamespace() != o.Namespace || !r.shows(object) || !r.indexed(object, o) || !matches(object, o) {
			continue
		}
		object = r.kept(object)
		if metadata {
			item := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: string(kind)}}
			_ = share(object, item)
			object = item
		}
		items = append(items, object)
	}
	return apimeta.SetList(into, items)
}

func matches(object client.Object, o client.ListOptions) bool {
	return o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(object.GetLabels()))
}

func (r *Reader) indexed(object client.Object, o client.ListOptions) bool {
	if o.FieldSelector == nil {
		return true
	}
	for _, want := range o.FieldSelector.Requirements() {
		if want.Field == metav1.ObjectNameField {
			if object.GetName() != want.Value {
				return false
			}
			continue
		}
		keys := r.store.indexes[KindOf(object)][want.Field]
		if keys == nil || !slices.Contains(keys(object), want.Value) {
			return false
		}
	}
	return true
}

// KindOf returns the kind of an object.
func KindOf(object any) identity.Kind {
	if meta, ok := object.(*metav1.PartialObjectMetadata); ok {
		return identity.Kind(meta.Kind)
	}
	if foreign, ok := object.(*unstructured.Unstructured); ok {
		return identity.Kind(foreign.GetKind())
	}
	return identity.Kind(reflect.TypeOf(object).Elem().Name())
}

// NameOf returns the name of an object.
func NameOf(object client.Object) Name {
	return Name{Kind: KindOf(object), Namespace: object.GetNamespace(), Name: object.GetName()}
}
