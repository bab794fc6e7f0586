package pvccache

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/internal/pvc"
)

// description is a kind as the configuration has it, and which of its paths led
// somewhere since it has been read as it is now.
type description struct {
	kind pvc.Kind

	mu    sync.Mutex
	as    schema.GroupVersion
	found map[string]bool
	// placeless is set once one of them is in no namespace.
	placeless bool
}

func describe(kind pvc.Kind) *description {
	return &description{kind: kind, found: map[string]bool{}}
}

// of tells what a workload wants, and notes what led there.
func (d *description) of(object any) (pvc.Want, error) {
	if workload, ok := object.(*unstructured.Unstructured); ok {
		d.mu.Lock()
		d.kind.Found(workload, func(lead string) { d.found[lead] = true })
		d.placeless = d.placeless || workload.GetNamespace() == ""
		d.mu.Unlock()
	}
	return ofKind(d.kind)(object)
}

// readAs begins anew: another version may have other fields.
func (d *description) readAs(resource schema.GroupVersionResource) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.as, d.found, d.placeless = schema.GroupVersion{}, map[string]bool{}, false
	if resource.Resource != "" {
		d.as = resource.GroupVersion()
	}
}

// came is what came of it, with so many workloads there.
func (d *description) came(workloads int) pvc.Described {
	d.mu.Lock()
	defer d.mu.Unlock()
	came := pvc.Described{Kind: d.kind, As: d.as, Workloads: workloads, Placeless: d.placeless, Found: make(map[string]bool, len(d.found))}
	for lead := range d.found {
		came.Found[lead] = true
	}
	return came
}

// Described is what came of the descriptions of kinds, of those that are known by now.
func (d *Desired) Described() []pvc.Described {
	var all []pvc.Described
	for _, k := range d.foreign {
		if k.description == nil || !k.known() {
			continue
		}
		workloads := 0
		if informer := k.informer(); informer != nil {
			workloads = len(informer.GetIndexer().ListKeys())
		}
		all = append(all, k.description.came(workloads))
	}
	return all
}
