package gangcache

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/kinds"
)

// Objects holds objects of one kind that a gang scheduler reads in memory.
type Objects interface {
	// Store returns the objects, or nil while memory may lack some. isAbsent reports whether the
	// API server is known not to serve them.
	Store() (store cache.Indexer, isAbsent bool)
}

// Watched watches one kind of a gang scheduler while the API server serves it.
type Watched struct {
	kind    *kinds.Kind
	changed func(*unstructured.Unstructured)
}

// Watch returns the objects of a kind, at its version alone, which a Starter is to run. changed is called with every object
// that comes, changes or goes, and turned when the kind comes or goes.
func Watch(starter *kinds.Starter, kind schema.GroupVersionKind, changed func(*unstructured.Unstructured), turned func()) *Watched {
	w := &Watched{changed: changed}
	w.kind = &kinds.Kind{GroupVersionKind: kind, Selector: lwsv1.SetNameLabelKey, Setup: w.setup, Turned: func([]any) { turned() }}
	starter.Add(w.kind)
	return w
}

// Store implements Objects.
func (w *Watched) Store() (store cache.Indexer, isAbsent bool) {
	informer := w.kind.Watched()
	if informer != nil && w.kind.Resource().Version != w.kind.Version {
		return nil, true
	}
	if informer != nil && informer.HasSynced() {
		return informer.GetIndexer(), false
	}
	return nil, w.kind.IsAbsent()
}

func (w *Watched) setup(informer cache.SharedIndexInformer) error {
	if err := informer.AddIndexers(cache.Indexers{indexSet: setLabel}); err != nil {
		return err
	}
	if err := informer.SetTransform(withoutStatus); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.report,
		UpdateFunc: func(_, is any) { w.report(is) },
		DeleteFunc: w.report,
	})
	return err
}

func (w *Watched) report(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if found, ok := object.(*unstructured.Unstructured); ok {
		w.changed(found)
	}
}

// indexSet finds objects by the label of their set.
const indexSet = "set"

func setLabel(object any) ([]string, error) {
	found, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	return []string{found.GetNamespace() + "/" + found.GetLabels()[lwsv1.SetNameLabelKey]}, nil
}

// withoutStatus drops what no decision reads.
func withoutStatus(object any) (any, error) {
	if found, ok := object.(*unstructured.Unstructured); ok {
		unstructured.RemoveNestedField(found.Object, "metadata", "managedFields")
		unstructured.RemoveNestedField(found.Object, "status")
	}
	return object, nil
}
