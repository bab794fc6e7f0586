package kinds

import (
	"context"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Starter follows CustomResourceDefinitions, and starts and stops the watches of kinds.
type Starter struct {
	discovery   rest.Interface
	objects     dynamic.Interface
	definitions metadata.Interface
	kinds       []*Kind
}

// New returns a Starter. It does nothing before Run.
func New(config *rest.Config, httpClient *http.Client) (*Starter, error) {
	s := &Starter{}
	discovery, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	s.discovery = discovery.RESTClient()
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

// Run watches until ctx ends.
func (s *Starter) Run(ctx context.Context) error {
	if len(s.kinds) == 0 {
		return nil
	}
	informer, err := s.definitionsInformer()
	if err != nil {
		return err
	}
	for _, k := range s.kinds {
		go k.run(ctx, s)
	}
	informer.RunWithContext(ctx)
	return nil
}

// definitionsInformer asks discovery for the kinds of a group when a definition of the
// group comes, changes or goes. It keeps the names of definitions alone.
func (s *Starter) definitionsInformer() (cache.SharedIndexInformer, error) {
	all := s.definitions.Resource(definitions)
	lw := listWatch(s.definitions, "", func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return all.List(ctx, options)
	}, all.Watch)
	informer := cache.NewSharedIndexInformer(lw, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
	if err := informer.SetTransform(nameOnly); err != nil {
		return nil, err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.defined, UpdateFunc: func(_, is any) { s.defined(is) }, DeleteFunc: s.defined,
	})
	return informer, err
}

// defined asks for the kinds that a definition may define. Its name is <plural>.<group>.
func (s *Starter) defined(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	_, group, _ := strings.Cut(key, ".")
	for _, k := range s.kinds {
		if k.Group == group {
			k.ask()
		}
	}
}

func nameOnly(object any) (any, error) {
	d, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion,
	}}, nil
}

// listWatch returns what lists and watches the objects that a selector of labels selects.
func listWatch(client any, selector string, list cache.ListWithContextFunc, follow cache.WatchFuncWithContext) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return list(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return follow(ctx, options)
		},
	}, client)
}

// objectsOf lists and watches a resource in all namespaces.
func (s *Starter) objectsOf(resource schema.GroupVersionResource, selector string) cache.ListerWatcher {
	all := s.objects.Resource(resource)
	return listWatch(s.objects, selector, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return all.List(ctx, options)
	}, all.Watch)
}

// Served returns the resource that the API server serves a kind as, as the function does.
func (s *Starter) Served(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	return Served(ctx, s.discovery, kind)
}
