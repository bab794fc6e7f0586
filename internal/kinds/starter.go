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

// Clients are what a Starter reads through.
type Clients struct {
	// Discovery is any REST client of the API server: it asks by absolute paths.
	Discovery rest.Interface
	Objects   dynamic.Interface
	// Definitions reads CustomResourceDefinitions.
	Definitions metadata.Interface
}

// ClientsFor returns clients for a configuration.
func ClientsFor(config *rest.Config, httpClient *http.Client) (Clients, error) {
	var c Clients
	discovery, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return c, err
	}
	c.Discovery = discovery.RESTClient()
	if c.Objects, err = dynamic.NewForConfigAndClient(config, httpClient); err != nil {
		return c, err
	}
	c.Definitions, err = metadata.NewForConfigAndClient(config, httpClient)
	return c, err
}

// Starter follows CustomResourceDefinitions, and starts and stops the watches of kinds.
type Starter struct {
	discovery   rest.Interface
	objects     dynamic.Interface
	definitions metadata.Interface
	kinds       []*Kind
}

// New returns a Starter for kinds. It does nothing before Run.
func New(clients Clients, kinds ...*Kind) *Starter {
	for _, k := range kinds {
		k.changed = make(chan struct{}, 1)
	}
	return &Starter{discovery: clients.Discovery, objects: clients.Objects, definitions: clients.Definitions, kinds: kinds}
}

// Run watches until ctx ends.
func (s *Starter) Run(ctx context.Context) error {
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
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, options)
		},
	}, s.definitions), &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
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

// listWatch lists and watches a resource in all namespaces.
func (s *Starter) listWatch(resource schema.GroupVersionResource, selector string) cache.ListerWatcher {
	all := s.objects.Resource(resource)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return all.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return all.Watch(ctx, options)
		},
	}, s.objects)
}
