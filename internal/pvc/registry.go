package pvc

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"lockstep.dev/lockstep/internal/identity"
)

// Kind describes a kind of workload that is not built in: by configuration, not
// by code. Paths are fields with dots between; "*" is every element of a list.
type Kind struct {
	schema.GroupVersionKind
	// Templates lead to pod templates: "spec.replicatedJobs.*.template.spec.template".
	Templates []string
	// ClaimTemplates lead to lists of claims.
	ClaimTemplates []string
	// ClaimName is how claims of templates are named, of {template}, {name} and, at
	// the end, {ordinal}: "{template}-{name}".
	ClaimName string
	// Replicas leads to the number of replicas, or is empty; to those of each part, where
	// "*" is in it.
	Replicas string
	// Suspend leads to a switch, or is empty; a workload is suspended if all of its parts
	// are.
	Suspend string
	// Finished are the condition types that, when True, say that it is over.
	Finished []string
}

// JobSet is known without being told.
var JobSet = Kind{
	GroupVersionKind: schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
	Templates:        []string{"spec.replicatedJobs.*.template.spec.template"},
	ClaimTemplates:   []string{"spec.volumeClaimPolicies.*.templates"},
	ClaimName:        "{template}-{name}",
	Suspend:          "spec.suspend",
	Finished:         []string{"Completed", "Failed"},
}

const ordinalSuffix = "-{ordinal}"

// Check tells what is wrong with a kind, or returns nil.
func (k Kind) Check() error {
	if k.Kind == "" || k.Version == "" {
		return fmt.Errorf("workload %q: a kind and a version are needed", k.GroupVersionKind)
	}
	if len(k.Templates)+len(k.ClaimTemplates) == 0 {
		return fmt.Errorf("workload %q: neither pod templates nor claim templates", k.Kind)
	}
	if len(k.ClaimTemplates) == 0 {
		return nil
	}
	return k.checkClaimName()
}

// checkClaimName: by a name that no claim can have, nothing would be held, and nobody
// would be told.
func (k Kind) checkClaimName() error {
	plain := strings.NewReplacer("{template}", "t", "{name}", "n", "{ordinal}", "0").Replace(k.ClaimName)
	numbered := strings.HasSuffix(k.ClaimName, ordinalSuffix)
	switch {
	case !strings.Contains(k.ClaimName, "{template}"):
		return fmt.Errorf("workload %q: claim name %q does not contain {template}", k.Kind, k.ClaimName)
	case strings.Contains(strings.TrimSuffix(k.ClaimName, ordinalSuffix), "{ordinal}"):
		return fmt.Errorf("workload %q: claim name %q: {ordinal} may stand at the end alone, after a dash", k.Kind, k.ClaimName)
	case len(validation.IsDNS1123Subdomain(plain)) > 0:
		return fmt.Errorf("workload %q: claim name %q names no claim there can be: beside {template}, {name} and {ordinal} it may be of lower case letters, digits, dashes and dots", k.Kind, k.ClaimName)
	case numbered && k.Replicas == "":
		return fmt.Errorf("workload %q: ordinals need replicas", k.Kind)
	}
	return nil
}

// Of is what a workload of the kind wants. A field that is not there, or is not
// what it should be, names nothing; that it makes a workload idle needs proof.
func (k Kind) Of(workload *unstructured.Unstructured) Want {
	w := newWant(identity.Kind(k.Kind), workload.GetAPIVersion(), workload)
	w.Released = k.released()
	n := k.replicas(workload.Object)
	if k.Replicas != "" {
		w.idleAt(n)
	}
	if k.isSuspended(workload.Object) {
		w.Idle = suspended
	}
	if k.isFinished(workload.Object) {
		w.Idle = finished
	}
	for _, path := range k.Templates {
		for _, template := range at(workload.Object, path) {
			w.volumes(path, template)
		}
	}
	for _, path := range k.ClaimTemplates {
		for _, claim := range at(workload.Object, path+".*") {
			k.claim(&w, path, claim, n)
		}
	}
	return w
}

// released is what ends the pods of a workload: one that finishes may leave them.
func (k Kind) released() string {
	switch {
	case k.Suspend != "":
		return "suspend it, or delete it"
	case k.Replicas != "":
		return "scale it down, or delete it"
	}
	return "delete it"
}

func (w *Want) volumes(path string, template any) {
	for _, volume := range at(template, "spec.volumes.*") {
		for _, claim := range at(volume, "persistentVolumeClaim.claimName") {
			if name, ok := claim.(string); ok && name != "" {
				w.Named[name] = path + ".spec.volumes"
			}
		}
	}
}

func (k Kind) claim(w *Want, path string, template any, n int) {
	for _, value := range at(template, "metadata.name") {
		name, ok := value.(string)
		if !ok || name == "" {
			continue
		}
		filled := strings.NewReplacer("{template}", name, "{name}", w.Workload.Name).Replace(k.ClaimName)
		if prefix, numbered := strings.CutSuffix(filled, ordinalSuffix); numbered {
			w.Series = append(w.Series, Series{Prefix: prefix, Spans: []Span{{0, n}}, Path: path})
			continue
		}
		w.Named[filled] = path
	}
}

// replicas are those of the largest part, where the path leads to several: a claim that
// is named by an ordinal may be of any. A part that does not say has one, as it is of a
// workload that does not.
func (k Kind) replicas(object any) int {
	parts := saidBy(object, k.Replicas)
	if len(parts) == 0 {
		return 1
	}
	most := 0
	for _, said := range parts {
		most = max(most, replicasOf(said))
	}
	return most
}

// replicasOf is a number of replicas as an object says it. What is no number may be any:
// claims of whatever ordinal are held.
func replicasOf(said any) int {
	n, ok := said.(int64)
	switch {
	case said == nil, ok && n < 0: // no proof that it is idle
		return 1
	case !ok:
		return math.MaxInt32
	}
	return int(min(n, math.MaxInt32))
}

// isSuspended reports whether the switch is on: in every part that has one to be.
func (k Kind) isSuspended(object any) bool {
	parts := saidBy(object, k.Suspend)
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(said any) bool { return said != true })
}

// saidBy is what each part of an object that a path leads through says in the last field
// of the path: nil of one that says nothing.
func saidBy(object any, path string) (said []any) {
	if path == "" {
		return nil
	}
	parts, field := []any{object}, path
	if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
		parts, field = at(object, path[:dot]), path[dot+1:]
	}
	for _, part := range parts {
		values := into(part, field)
		if len(values) == 0 {
			values = []any{nil}
		}
		said = append(said, values...)
	}
	return said
}

func (k Kind) isFinished(object any) bool {
	for _, value := range at(object, "status.conditions.*") {
		condition, ok := value.(map[string]any)
		if !ok || condition["status"] != "True" {
			continue
		}
		for _, over := range k.Finished {
			if condition["type"] == over {
				return true
			}
		}
	}
	return false
}

// at is every value that a path leads to.
func at(value any, path string) []any {
	if path == "" {
		return nil
	}
	values := []any{value}
	for _, field := range strings.Split(path, ".") {
		var next []any
		for _, value := range values {
			next = append(next, into(value, field)...)
		}
		values = next
	}
	return values
}

func into(value any, field string) []any {
	if field == "*" {
		list, _ := value.([]any)
		return list
	}
	object, _ := value.(map[string]any)
	if inner, ok := object[field]; ok {
		return []any{inner}
	}
	return nil
}
