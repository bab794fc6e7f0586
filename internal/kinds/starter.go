// Package kinds starts and stops one watch for each kind that an API server need not serve.
//
// It knows when CustomResourceDefinitions come and go, and which version of a kind is
// served. It refuses to know what the objects mean, and what is kept of them.
package kinds

import (
	"context"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
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
	// changed are called with each version of the definition of their name.
	changed map[string]func(metav1.Object)
}

// New returns a Starter. It does nothing before Run.
func New(config *rest.Config, httpClient *http.Client) (*Starter, error) {
	s := &Starter{changed: map[string]func(metav1.Object){}}
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

// OnDefinition calls changed with each version of a CustomResourceDefinition. It must be called
// before Run.
func (s *Starter) OnDefinition(name string, changed func(metav1.Object)) { s.changed[name] = changed }

// Run watches until ctx ends. It returns at once if there are no kinds.
func (s *Starter) Run(ctx context.Context) error {
	if len(s.kinds)+len(s.changed) == 0 {
		return nil
	}
	informer := metadatainformer.NewFilteredMetadataInformer(s.definitions, definitions, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(nameOnly); err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.defined, UpdateFunc: func(_, is any) { s.defined(is) }, DeleteFunc: s.defined,
	}); err != nil {
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
	d, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion, Generation: d.Generation,
	}}, nil
}

// informer returns an informer of a resource in all namespaces.
func (s *Starter) informer(resource schema.GroupVersionResource, selector string) cache.SharedIndexInformer {
	return dynamicinformer.NewFilteredDynamicInformer(s.objects, resource, metav1.NamespaceAll, 0, cache.Indexers{},
		func(o *metav1.ListOptions) { o.LabelSelector = selector }).Informer()
}

// Served returns the resource that the API server serves a kind as, as the function does.
func (s *Starter) Served(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	return Served(ctx, s.discovery, kind)
}
