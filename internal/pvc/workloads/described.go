package workloads

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Where pod templates, claim templates and replicas are found.
const (
	containers = ".spec.containers.*"
	names      = ".*.metadata.name"
)

// paths are those by which PVCs are found. Many workloads leave out the switch that suspends:
// without it more PVCs are held.
func (k Kind) paths() (paths []string) {
	for _, path := range k.Fields.PodTemplates {
		paths = append(paths, path+containers)
	}
	for _, path := range k.Fields.ClaimTemplates {
		paths = append(paths, path+names)
	}
	if k.Fields.Replicas != "" {
		paths = append(paths, k.Fields.Replicas)
	}
	return paths
}

// Found calls note with the paths that a workload has.
func (k Kind) Found(workload *unstructured.Unstructured, note func(path string)) {
	for _, path := range k.paths() {
		if len(at(workload.Object, path)) > 0 {
			note(path)
		}
	}
}

// Described is a kind of the configuration, and what the API server has of it.
type Described struct {
	Kind
	// As is the group and version in which it is read, or empty while it is not served.
	As schema.GroupVersion
	// Workloads is how many there are.
	Workloads int
	// ClusterScoped reports that they are in no namespace: no PVC is beside them.
	ClusterScoped bool
	// Found are the paths that at least one of them has.
	Found map[string]bool
}

// Complaint is why the kind holds less than it promises, or empty. JobSet may be missing, and
// many have no PVCs.
func (d Described) Complaint() string {
	isJobSet := d.GroupVersionKind == JobSet.GroupVersionKind
	switch {
	case d.As.Empty() && isJobSet:
		return ""
	case d.As.Empty():
		return fmt.Sprintf("kind %s of %s is not served and holds nothing: install its definition, or correct protection.kinds of the configuration", d.Kind.Kind, d.GroupVersion())
	case d.Workloads == 0:
		return ""
	case d.ClusterScoped:
		return fmt.Sprintf("kind %s of %s is cluster-scoped and holds nothing: describe in protection.kinds of the configuration the namespaced kind that it creates", d.Kind.Kind, d.As)
	}
	missing := slices.DeleteFunc(d.paths(), func(path string) bool {
		return d.Found[path] || isJobSet && strings.HasSuffix(path, names)
	})
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("no %s, read as %s, has %s: the PVCs found by it are not held; correct protection.kinds of the configuration, unless the field is optional",
		d.Kind.Kind, d.As, strings.Join(missing, " or "))
}
