package pvccache

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// described is a kind of the configuration, and which of its paths workloads have.
type described struct {
	kind workloads.Kind

	mu    sync.Mutex
	found map[string]bool
	// clusterScoped is set once a workload is in no namespace.
	clusterScoped bool
}

// reset forgets what was found: another version may have other fields.
func (d *described) reset() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found, d.clusterScoped = map[string]bool{}, false
}

// of returns what a workload wants, and records which paths it has.
func (d *described) of(object any) (workloads.Want, error) {
	if workload, ok := object.(*unstructured.Unstructured); ok {
		d.mu.Lock()
		d.kind.Found(workload, func(path string) { d.found[path] = true })
		d.clusterScoped = d.clusterScoped || workload.GetNamespace() == ""
		d.mu.Unlock()
	}
	return ofKind(d.kind)(object)
}

// result returns what was found in a version, or while none is served.
func (d *described) result(resource schema.GroupVersionResource, count int) workloads.Described {
	d.mu.Lock()
	defer d.mu.Unlock()
	result := workloads.Described{Kind: d.kind, Workloads: count, ClusterScoped: d.clusterScoped, Found: maps.Clone(d.found)}
	if resource.Resource != "" {
		result.As = resource.GroupVersion()
	}
	return result
}

// Described returns what was found of each kind of the configuration that has been read.
func (w *Workloads) Described() []workloads.Described {
	var all []workloads.Described
	for _, k := range w.others {
		if k.described == nil || !k.IsRead() {
			continue
		}
		workloads := 0
		if informer := k.Watched(); informer != nil {
			workloads = len(informer.GetStore().ListKeys())
		}
		all = append(all, k.described.result(k.Resource(), workloads))
	}
	return all
}
