package interleave

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// informer is a cache that learns of the next change when deliver is called.
type informer[T client.Object] struct {
	ctrlcache.Informer // the methods that nothing calls
	log                *[]watch.Event

	mu       sync.Mutex
	at       int // how much of the log it knows
	known    map[string]T
	handlers []toolscache.ResourceEventHandler
}

// newInformer returns an informer that has listed the objects.
func newInformer[T client.Object](log *[]watch.Event, now map[string]T) *informer[T] {
	i := &informer[T]{log: log, at: len(*log), known: map[string]T{}}
	for name, object := range now {
		i.known[name] = object
	}
	return i
}

func (i *informer[T]) behind() bool { return i.at < len(*i.log) }

func (i *informer[T]) get(name string) (T, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	object, ok := i.known[name]
	return object, ok
}

func (i *informer[T]) all() []T {
	i.mu.Lock()
	defer i.mu.Unlock()
	var objects []T
	for _, name := range sorted(i.known) {
		objects = append(objects, i.known[name])
	}
	return objects
}

// deliver reports the next change.
func (i *informer[T]) deliver() {
	event := (*i.log)[i.at]
	i.at++
	object := event.Object.(T)
	before, had := i.get(object.GetName())
	i.mu.Lock()
	if event.Type == watch.Deleted {
		delete(i.known, object.GetName())
	} else {
		i.known[object.GetName()] = object
	}
	i.mu.Unlock()
	for _, h := range i.handlers {
		switch {
		case event.Type == watch.Deleted && had:
			h.OnDelete(object)
		case event.Type == watch.Deleted:
		case had:
			h.OnUpdate(before, object)
		default:
			h.OnAdd(object, false)
		}
	}
}

// relist skips to the present objects, as after a watch that broke. Objects that came and went
// between are never reported.
func (i *informer[T]) relist(now map[string]T) {
	i.at = len(*i.log)
	i.mu.Lock()
	was := i.known
	i.known = map[string]T{}
	for name, object := range now {
		i.known[name] = object
	}
	i.mu.Unlock()
	for _, name := range sorted(was) {
		if object, ok := now[name]; !ok {
			i.each(func(h toolscache.ResourceEventHandler) {
				h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: namespace + "/" + name, Obj: was[name]})
			})
		} else if object.GetResourceVersion() != was[name].GetResourceVersion() {
			i.each(func(h toolscache.ResourceEventHandler) { h.OnUpdate(was[name], object) })
		}
	}
	for _, name := range sorted(now) {
		if _, ok := was[name]; !ok {
			i.each(func(h toolscache.ResourceEventHandler) { h.OnAdd(now[name], false) })
		}
	}
}

func (i *informer[T]) each(tell func(toolscache.ResourceEventHandler)) {
	for _, h := range i.handlers {
		tell(h)
	}
}

// AddEventHandler reports the objects that the cache holds.
func (i *informer[T]) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, h)
	for _, object := range i.all() {
		h.OnAdd(object, true)
	}
	return nil, nil
}

// caches hold the PVCs that the controller reads, and no namespaces.
type caches struct {
	ctrlcache.Cache // the methods that nothing calls
	claims          *informer[*corev1.PersistentVolumeClaim]
}

func (c *caches) WaitForCacheSync(context.Context) bool { return true }

func (c *caches) GetInformer(_ context.Context, of client.Object, _ ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	if _, ok := of.(*corev1.PersistentVolumeClaim); ok {
		return c.claims, nil
	}
	return newInformer(new([]watch.Event), map[string]*corev1.Namespace{}), nil
}

func (c *caches) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	claim, ok := into.(*corev1.PersistentVolumeClaim)
	if !ok {
		return apierrors.NewNotFound(claimResource, key.Name) // the namespace has no annotations
	}
	found, ok := c.claims.get(key.Name)
	if !ok {
		return apierrors.NewNotFound(claimResource, key.Name)
	}
	*claim = *found
	return nil
}

func isP(finalizer string) bool { return finalizer == pvc.PodsFinalizer }

func (c *caches) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list := into.(*corev1.PersistentVolumeClaimList)
	for _, claim := range c.claims.all() {
		list.Items = append(list.Items, *claim)
	}
	return nil
}
