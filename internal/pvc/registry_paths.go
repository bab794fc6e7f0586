package pvc

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lead is a path of a description, and what it is to lead to.
type lead struct{ path, to string }

// What paths are to lead to.
const (
	toTemplate = "a pod template"
	toClaims   = "a list of claims"
	toNumber   = "a number"
)

// leads are the paths by which claims are found. A switch that suspends, which most
// workloads leave out, is none of them: without it more is held, not less.
func (k Kind) leads() []lead {
	var leads []lead
	for _, path := range k.Templates {
		leads = append(leads, lead{path, toTemplate})
	}
	for _, path := range k.ClaimTemplates {
		leads = append(leads, lead{path, toClaims})
	}
	if k.Replicas != "" {
		leads = append(leads, lead{k.Replicas, toNumber})
	}
	return leads
}

func (l lead) String() string { return fmt.Sprintf("%q to %s", l.path, l.to) }

// arrives reports whether the path leads on a workload to what it should.
func (l lead) arrives(workload any) bool {
	switch l.to {
	case toTemplate:
		return len(at(workload, l.path+".spec.containers.*")) > 0
	case toClaims:
		return len(at(workload, l.path+".*.metadata.name")) > 0
	}
	for _, value := range at(workload, l.path) {
		if _, ok := value.(int64); ok {
			return true
		}
	}
	return false
}

// Found notes which paths lead on a workload to what they should.
func (k Kind) Found(workload *unstructured.Unstructured, note func(lead string)) {
	for _, l := range k.leads() {
		if l.arrives(workload.Object) {
			note(l.String())
		}
	}
}

// Described is what came of the description of a kind.
type Described struct {
	Kind
	// As is the group and version that it is read in, empty while it is not served.
	As schema.GroupVersion
	// Workloads is how many there are.
	Workloads int
	// Placeless is set when they are in no namespace, as those of a kind of the whole
	// cluster are: no claim is beside them.
	Placeless bool
	// Found are the paths that led somewhere on one of them.
	Found map[string]bool
}

// Complaint says why a description holds less than it promises, or is empty. JobSet is
// known without being described: where it is not served, nobody misses it, and many
// have no claims.
func (d Described) Complaint() string {
	known := d.GroupVersionKind == JobSet.GroupVersionKind
	if d.As.Empty() {
		if known {
			return ""
		}
		return fmt.Sprintf("kind %s of %s is not served: nothing is held for it until it is. Install its definition, or correct apiVersion and kind in protection.kinds of the configuration", d.Kind.Kind, d.GroupVersion())
	}
	if d.Workloads == 0 {
		return ""
	}
	if d.Placeless {
		return fmt.Sprintf("kind %s of %s is of the whole cluster: nothing is held for it, since claims are looked for in the namespace of their workload. Describe in protection.kinds of the configuration the kind that it makes in namespaces instead", d.Kind.Kind, d.As)
	}
	var astray []string
	for _, l := range d.leads() {
		if !d.Found[l.String()] && (!known || l.to != toClaims) {
			astray = append(astray, l.String())
		}
	}
	if len(astray) == 0 {
		return ""
	}
	return fmt.Sprintf("on no %s there is (read as %s) leads %s: claims that are found by that are not held. Correct protection.kinds of the configuration, unless the field is left out on purpose",
		d.Kind.Kind, d.As, strings.Join(astray, ", or "))
}
