package pvccache

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// described returns a transform for a kind of the configuration, which keeps the described
// paths that a workload has.
func described(kind workloads.Kind) func(any) (any, error) {
	reduce := workloadOf(ofKind(kind))
	return func(object any) (any, error) {
		reduced, err := reduce(object)
		source, untyped := object.(*unstructured.Unstructured)
		if w, ok := reduced.(*workload); ok && untyped {
			kind.Found(source, func(path string) { w.found = append(w.found, path) })
		}
		return reduced, err
	}
}

// Described returns what was found of each kind of the configuration that has been read.
func (w *Workloads) Described() (all []workloads.Described) {
	for _, k := range w.others {
		if k.described != nil && k.IsRead() {
			all = append(all, k.result())
		}
	}
	return all
}

// result returns which described paths the workloads of a kind have.
func (k *otherKind) result() workloads.Described {
	result := workloads.Described{Kind: *k.described, Found: map[string]bool{}}
	informer := k.Watched()
	if informer == nil {
		return result
	}
	result.As = k.Resource().GroupVersion()
	for _, object := range informer.GetStore().List() {
		w, ok := object.(*workload)
		if !ok {
			continue
		}
		result.Workloads++
		result.ClusterScoped = result.ClusterScoped || w.Namespace == ""
		for _, path := range w.found {
			result.Found[path] = true
		}
	}
	return result
}
