package fakeapi

import (
	"context"
	"maps"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
)

// Shared is a Server for concurrent use, with caches that follow it.
type Shared struct {
	client.Client // panics in the verbs that no test uses

	// Fail, when set, may refuse a request, or change the server before the request arrives.
	Fail func(verb string, of Name) error

	mu       sync.Mutex
	server   *Server
	requests map[string]int
	// shown is the content of the caches. It does not change while late is set.
	shown    *Reader
	late     bool
	pending  []watch.Event
	handlers map[identity.Kind][]toolscache.ResourceEventHandler
	pods     chan watch.Event
	// version is the resourceVersion of the last change of a pod, and reached that of the
	// last one in the caches.
	version, reached string
}

// NewShared returns a Shared with objects.
func NewShared(objects ...client.Object) *Shared {
	s := &Shared{
		server: New(), requests: map[string]int{}, version: "0", handlers: map[identity.Kind][]toolscache.ResourceEventHandler{},
		pods: make(chan watch.Event, 1000),
	}
	s.server.Changed = func(how watch.EventType, object client.Object) {
		if KindOf(object) == identity.KindPod {
			s.version = object.GetResourceVersion()
		}
		s.pending = append(s.pending, watch.Event{Type: how, Object: object})
	}
	for _, object := range objects {
		Add(s.server, object)
	}
	s.shown = &Reader{store: s.server, objects: Objects{}}
	s.deliver()
	return s
}

// Do calls change with the server, and then updates the caches.
func (s *Shared) Do(change func(*Server)) {
	s.mu.Lock()
	change(s.server)
	s.mu.Unlock()
	s.deliver()
}

// Late stops the updates of the caches, or resumes them.
func (s *Shared) Late(late bool) {
	s.mu.Lock()
	s.late = late
	s.mu.Unlock()
	s.deliver()
}

// Requests returns the number of requests of a verb for a kind since the last call. The verb of a
// list of metadata is probe.
func (s *Shared) Requests(verb string, kind identity.Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer delete(s.requests, verb+" "+string(kind))
	return s.requests[verb+" "+string(kind)]
}

// deliver updates the caches and calls the event handlers.
func (s *Shared) deliver() {
	s.mu.Lock()
	if s.late {
		s.mu.Unlock()
		return
	}
	before, events := s.shown.objects, s.pending
	s.shown.objects, s.pending, s.reached = maps.Clone(s.server.Objects), nil, s.version
	handlers := maps.Clone(s.handlers)
	s.mu.Unlock()
	for _, event := range events {
		object := event.Object.(client.Object)
		was := before[NameOf(object)]
		if KindOf(object) == identity.KindPod {
			s.pods <- event
		}
		for _, handler := range handlers[KindOf(object)] {
			switch {
			case event.Type == watch.Deleted:
				handler.OnDelete(object)
			case was != nil:
				handler.OnUpdate(seen(was), seen(object))
			default:
				handler.OnAdd(seen(object), false)
			}
		}
		before[NameOf(object)] = object
	}
}

// seen returns an object as the operator's informers keep it: of a namespace, the metadata.
func seen(object client.Object) client.Object {
	if KindOf(object) != identity.KindNamespace {
		return object
	}
	meta := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	_ = share(object, meta)
	return meta
}

func (s *Shared) request(verb string, of Name, run func() error) error {
	if s.Fail != nil {
		if err := s.Fail(verb, of); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.requests[verb+" "+string(of.Kind)]++
	err := run()
	s.mu.Unlock()
	s.deliver()
	return err
}

// Get implements client.Reader.
func (s *Shared) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return s.request("get", Name{KindOf(into), key.Namespace, key.Name}, func() error { return s.server.Get(ctx, key, into) })
}

// List implements client.Reader.
func (s *Shared) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	verb, kind := "list", KindOf(into)
	if meta, ok := into.(*metav1.PartialObjectMetadataList); ok {
		verb, kind = "probe", identity.Kind(meta.Kind)
	}
	of := Name{Kind: identity.Kind(strings.TrimSuffix(string(kind), "List"))}
	return s.request(verb, of, func() error {
		into.SetResourceVersion(s.version)
		return s.server.List(ctx, into, opts...)
	})
}

// Patch implements client.Writer.
func (s *Shared) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return s.request("patch", NameOf(object), func() error { return s.server.Patch(ctx, object, patch, opts...) })
}

// Delete implements client.Writer.
func (s *Shared) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	return s.request("delete", NameOf(object), func() error { return s.server.Delete(ctx, object, opts...) })
}

// Pods lists and watches the pods in the caches.
func (s *Shared) Pods() toolscache.ListerWatcher {
	lists := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for len(s.pods) > 0 {
				<-s.pods
			}
			list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: s.reached}}
			return list, s.shown.List(ctx, list)
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watch.NewProxyWatcher(s.pods), nil
		},
	}
	return toolscache.ToListWatcherWithWatchListSemantics(lists, listsOnly{})
}

// listsOnly makes a reflector list before it watches.
type listsOnly struct{}

func (listsOnly) IsWatchListSemanticsUnSupported() bool { return true }

// Caches returns caches that follow the server.
func (s *Shared) Caches() cache.Cache { return caches{shared: s} }

// caches read the content of the caches.
type caches struct {
	cache.Cache // panics in the methods that no test uses
	shared      *Shared
}

func (c caches) WaitForCacheSync(context.Context) bool { return true }

func (c caches) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	return c.shared.shown.Get(ctx, key, into)
}

func (c caches) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	return c.shared.shown.List(ctx, into, opts...)
}

func (c caches) GetInformer(_ context.Context, of client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return informer{shared: c.shared, kind: KindOf(of)}, nil
}

// informer is the informer of one kind.
type informer struct {
	cache.Informer // panics in the methods that no test uses
	shared         *Shared
	kind           identity.Kind
}

func (i informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.shared.mu.Lock()
	i.shared.handlers[i.kind] = append(i.shared.handlers[i.kind], handler)
	objects := maps.Clone(i.shared.shown.objects)
	i.shared.mu.Unlock()
	for name, object := range objects {
		if name.Kind == i.kind {
			handler.OnAdd(seen(object), true)
		}
	}
	return nil, nil
}
