// Package kinds starts and stops one watch for each kind that an API server need not serve.
//
// It knows when CustomResourceDefinitions come and go, and which version of a kind is
// served. It refuses to know what the objects mean, and what is kept of them.
package kinds

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// askSoonest is the pause after discovery was asked because of an event. Then it doubles:
	// the API server announces a CustomResourceDefinition before it serves the kind.
	askSoonest = 500 * time.Millisecond
	// askAgain is the longest pause: a kind may be served by an APIService, and the operator
	// may lack the right to read CustomResourceDefinitions.
	askAgain = 30 * time.Second
)

// Kind is one kind that may come and go.
type Kind struct {
	schema.GroupVersionKind
	// Selector restricts the watch by labels.
	Selector string
	// Setup prepares the informer of the kind, each time that it is served.
	Setup func(cache.SharedIndexInformer) error
	// Turned is called after a watch of the kind started or stopped, with the objects of
	// the one that stopped. It may be nil.
	Turned func(stopped []any)
	// Failed is called with failed lists and watches. It may be nil.
	Failed cache.WatchErrorHandlerWithContext

	// changed has a value when discovery is to be asked.
	changed chan struct{}
	// now is nil until discovery has answered.
	now atomic.Pointer[watching]
}

// watching is one watch of a kind. The zero value means that the kind is not served.
type watching struct {
	resource schema.GroupVersionResource
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
}

// String names a kind as kubectl does.
func (k *Kind) String() string {
	return strings.ToLower(k.Kind) + "." + k.Group
}

// Watched returns the informer of the kind, or nil while the kind is not known to be served.
// It may not have synced yet.
func (k *Kind) Watched() cache.SharedIndexInformer {
	return ptr.Deref(k.now.Load(), watching{}).informer
}

// Resource returns where the kind is served, or nothing while it is not known to be served.
func (k *Kind) Resource() schema.GroupVersionResource {
	return ptr.Deref(k.now.Load(), watching{}).resource
}

// IsAbsent reports whether the API server is known not to serve the kind.
func (k *Kind) IsAbsent() bool {
	now := k.now.Load()
	return now != nil && now.informer == nil
}

// IsRead reports whether all objects of the kind are in the store, or none can exist.
func (k *Kind) IsRead() bool {
	now := k.now.Load()
	return now != nil && (now.informer == nil || now.informer.HasSynced())
}

// run asks discovery for the kind after each event, and more and more slowly without one.
func (k *Kind) run(ctx context.Context, s *Starter) {
	for pause := askSoonest; ctx.Err() == nil; pause = min(2*pause, askAgain) {
		resource, err := s.Served(ctx, k.GroupVersionKind)
		if err == nil {
			err = k.follow(ctx, s, resource)
		}
		if err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Failed to find out whether the API server serves a kind", "kind", k.String())
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-k.changed:
			pause = askSoonest / 2
		}
	}
}

// follow watches a resource, or nothing if it has no name. While discovery fails, the watch continues.
func (k *Kind) follow(ctx context.Context, s *Starter, resource schema.GroupVersionResource) error {
	before := k.now.Load()
	if before != nil && before.resource == resource {
		return nil
	}
	now := &watching{resource: resource}
	if resource.Resource != "" {
		informer := s.informer(resource, k.Selector)
		if err := errors.Join(k.Setup(informer), informer.SetWatchErrorHandlerWithContext(k.failed)); err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		now.informer, now.stop = informer, stop
		go informer.RunWithContext(running)
	}
	k.now.Store(now)
	var stopped []any
	if before != nil && before.informer != nil {
		before.stop()
		stopped = before.informer.GetStore().List()
	}
	if k.Turned != nil && (before != nil || now.informer != nil) {
		k.Turned(stopped)
	}
	return nil
}

// failed asks discovery again when a watch fails because its resource is gone.
func (k *Kind) failed(ctx context.Context, r *cache.Reflector, err error) {
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		k.ask()
		return
	}
	if k.Failed != nil {
		k.Failed(ctx, r, err)
		return
	}
	cache.DefaultWatchErrorHandler(ctx, r, err)
}

// ask makes run ask discovery soon.
func (k *Kind) ask() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Starter follows CustomResourceDefinitions, and starts and stops the watches of kinds.
type Starter struct {
	discovery   *discovery.DiscoveryClient
	objects     dynamic.Interface
	definitions metadata.Interface
	kinds       []*Kind
	// changed are called with each version of the definition of their name.
	changed map[string]func(metav1.Object)
}

// New returns a Starter. It does nothing before Run.
func New(config *rest.Config, httpClient *http.Client) (*Starter, error) {
	discovery, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	s := &Starter{discovery: discovery, changed: map[string]func(metav1.Object){}}
	if s.objects, err = dynamic.NewForConfigAndClient(config, httpClient); err != nil {
		return nil, err
	}
	s.definitions, err = metadata.NewForConfigAndClient(config, httpClient)
	return s, err
}

// Add adds a kind. It must be called before Run.
func (s *Starter) Add(kind *Kind) {
	kind.changed = make(chan struct{}, 1)
	s.kinds = append(s.kinds, kind)
}

// OnDefinition calls changed with each version of a CustomResourceDefinition. It must be called
// before Run.
func (s *Starter) OnDefinition(name string, changed func(metav1.Object)) { s.changed[name] = changed }

// Run watches until ctx ends. It returns at once if there are no kinds.
func (s *Starter) Run(ctx context.Context) error {
	if len(s.kinds)+len(s.changed) == 0 {
		return nil
	}
	informer := metadatainformer.NewFilteredMetadataInformer(s.definitions, definitions, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.defined, UpdateFunc: func(_, is any) { s.defined(is) }, DeleteFunc: s.defined,
	})
	if err := errors.Join(err, informer.SetTransform(nameOnly)); err != nil {
		return err
	}
	for _, k := range s.kinds {
		go k.run(ctx, s)
	}
	informer.RunWithContext(ctx)
	return nil
}

// defined asks discovery for the kinds of a definition's group. Its name is <plural>.<group>.
func (s *Starter) defined(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	if is, ok := object.(metav1.Object); ok && s.changed[key] != nil {
		s.changed[key](is)
	}
	_, group, _ := strings.Cut(key, ".")
	for _, k := range s.kinds {
		if k.Group == group {
			k.ask()
		}
	}
}

// nameOnly keeps the names of definitions alone.
func nameOnly(object any) (any, error) {
	if d, ok := object.(*metav1.PartialObjectMetadata); ok {
		kept := metav1.ObjectMeta{Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion, Generation: d.Generation}
		*d = metav1.PartialObjectMetadata{ObjectMeta: kept}
	}
	return object, nil
}

// informer returns an informer of a resource in all namespaces.
func (s *Starter) informer(resource schema.GroupVersionResource, selector string) cache.SharedIndexInformer {
	return dynamicinformer.NewFilteredDynamicInformer(s.objects, resource, metav1.NamespaceAll, 0, cache.Indexers{},
		func(o *metav1.ListOptions) { o.LabelSelector = selector }).Informer()
}

// Served returns the resource that the API server serves a kind as. The resource has no name
// if the kind is not served. Any version will do: first the given one, then the preferred one.
func (s *Starter) Served(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	resource, err := s.servedIn(ctx, kind)
	if err != nil || resource.Resource != "" || kind.Group == "" {
		return resource, err
	}
	group := &metav1.APIGroup{}
	err = s.discovery.RESTClient().Get().AbsPath("/apis/" + kind.Group).Do(ctx).Into(group)
	if apierrors.IsNotFound(err) {
		return schema.GroupVersionResource{}, nil
	}
	for _, version := range append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...) {
		if err != nil || resource.Resource != "" || version.Version == "" || version.Version == kind.Version {
			continue
		}
		resource, err = s.servedIn(ctx, kind.GroupKind().WithVersion(version.Version))
	}
	return resource, err
}

func (s *Starter) servedIn(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	found := schema.GroupVersionResource{}
	list, err := s.discovery.ServerResourcesForGroupVersionWithContext(ctx, kind.GroupVersion().String())
	if err != nil {
		return found, client.IgnoreNotFound(err)
	}
	for i := range list.APIResources {
		if r := &list.APIResources[i]; r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
			found = kind.GroupVersion().WithResource(r.Name)
		}
	}
	return found, nil
}
