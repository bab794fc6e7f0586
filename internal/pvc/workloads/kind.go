package workloads

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// Kind is a kind of workload that the configuration describes.
type Kind struct {
	schema.GroupVersionKind
	// Fields has paths: names of fields with dots between; "*" is every element of a list.
	Fields v1alpha1.WorkloadKind
}

// KindOf is a kind of the configuration.
func KindOf(k v1alpha1.WorkloadKind) Kind {
	return Kind{schema.FromAPIVersionAndKind(k.APIVersion, k.Kind), k}
}

// JobSet needs no description.
var JobSet = KindOf(v1alpha1.WorkloadKind{
	APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet",
	PodTemplates:   []string{"spec.replicatedJobs.*.template.spec.template"},
	ClaimTemplates: []string{"spec.volumeClaimPolicies.*.templates"},
	ClaimName:      "{template}-{name}",
	Suspend:        "spec.suspend",
	Finished:       []string{"Completed", "Failed"},
})

// DisaggregatedSet wants what its roles name, before a role has its LeaderWorkerSet. Numbered PVCs are those of that set.
var DisaggregatedSet = KindOf(v1alpha1.WorkloadKind{
	APIVersion: dsv1.GroupVersion.String(), Kind: string(identity.KindDisaggregatedSet),
	PodTemplates: []string{"spec.roles.*.spec.leaderWorkerTemplate.leaderTemplate", "spec.roles.*.spec.leaderWorkerTemplate.workerTemplate"},
	Replicas:     "spec.roles.*.spec.replicas",
})

// KindsOf are the kinds of a configuration, and those that need no description unless the configuration describes them.
func KindsOf(described []v1alpha1.WorkloadKind) (kinds []Kind) {
	for _, k := range described {
		kinds = append(kinds, KindOf(k))
	}
	for _, known := range []Kind{JobSet, DisaggregatedSet} {
		if !slices.ContainsFunc(kinds, func(k Kind) bool { return k.GroupKind() == known.GroupKind() }) {
			kinds = append(kinds, known)
		}
	}
	return kinds
}

const ordinalSuffix = "-{ordinal}"

// Check returns what is wrong with a kind, or nil. Nothing is held by a name that no PVC can have.
func (k Kind) Check() error {
	name := k.Fields.ClaimName
	sample := strings.NewReplacer("{template}", "t", "{name}", "n", "{ordinal}", "0").Replace(name)
	unnumbered, numbered := strings.CutSuffix(name, ordinalSuffix)
	switch {
	case k.Kind == "" || k.Version == "":
		return fmt.Errorf("workload %q: a kind and a version are needed", k.GroupVersionKind)
	case len(k.Fields.PodTemplates)+len(k.Fields.ClaimTemplates) == 0:
		return fmt.Errorf("workload %q: neither pod templates nor claim templates", k.Kind)
	case len(k.Fields.ClaimTemplates) == 0:
		return nil
	case !strings.Contains(name, "{template}"):
		return fmt.Errorf("workload %q: claim name %q does not contain {template}", k.Kind, name)
	case strings.Contains(unnumbered, "{ordinal}"):
		return fmt.Errorf("workload %q: claim name %q: {ordinal} may only be the end, after a dash", k.Kind, name)
	case len(validation.IsDNS1123Subdomain(sample)) > 0:
		return fmt.Errorf("workload %q: no PVC can have claim name %q: beside {template}, {name} and {ordinal} use lower case letters, digits, dashes and dots", k.Kind, name)
	case numbered && k.Fields.Replicas == "":
		return fmt.Errorf("workload %q: ordinals need replicas", k.Kind)
	}
	return nil
}

// Of is what a workload of the kind wants. A field that is missing or has another type names no
// PVC, and does not make the workload idle.
func (k Kind) Of(untyped any) Want {
	workload := untyped.(*unstructured.Unstructured)
	w, object := newWant(identity.Kind(k.Kind), workload.GetAPIVersion(), workload), workload.Object
	w.Released = k.released()
	n := k.replicas(object)
	w.idleAt(n)
	if k.isSuspended(object) {
		w.Idle = suspended
	}
	if slices.ContainsFunc(at(object, "status.conditions.*"), k.isFinished) {
		w.Idle = Finished
	}
	for _, path := range k.Fields.PodTemplates {
		w.volumes(object, path)
	}
	for _, path := range k.Fields.ClaimTemplates {
		for _, name := range texts(object, path+".*.metadata.name") {
			k.template(&w, path, name, n)
		}
	}
	return w
}

// template adds the PVCs of one claim template.
func (k Kind) template(w *Want, path, template string, n int) {
	name := strings.NewReplacer("{template}", template, "{name}", w.Workload.Name).Replace(k.Fields.ClaimName)
	if prefix, numbered := strings.CutSuffix(name, ordinalSuffix); numbered {
		w.Series = append(w.Series, Series{Prefix: prefix, Spans: []Span{{0, n}}, Path: path})
		return
	}
	w.Named[name] = path
}

// released is what ends the pods of a workload: one that finishes may leave them.
func (k Kind) released() string {
	switch {
	case k.Fields.Suspend != "":
		return "suspend it, or delete it"
	case k.Fields.Replicas != "":
		return "scale it down, or delete it"
	}
	return "delete it"
}

// replicas are those of the largest part, where the path leads to several. A negative number is
// of unknown meaning, and not idle.
func (k Kind) replicas(object any) int {
	values := at(object, k.Fields.Replicas)
	if len(values) == 0 {
		return 1
	}
	most := 0
	for _, value := range values {
		n := number(value, 1)
		if n < 0 {
			n = 1
		}
		most = max(most, n)
	}
	return most
}

// isSuspended reports whether the switch is on in every part.
func (k Kind) isSuspended(object any) bool {
	values := at(object, k.Fields.Suspend)
	return len(values) > 0 && !slices.ContainsFunc(values, func(value any) bool { return value != true })
}

func (k Kind) isFinished(condition any) bool {
	fields, _ := condition.(map[string]any)
	kind, _ := fields["type"].(string)
	return fields["status"] == "True" && slices.Contains(k.Fields.Finished, kind)
}

// at is every value that a path leads to: nil where an element lacks the field.
func at(value any, path string) []any {
	if path == "" {
		return nil
	}
	values := []any{value}
	for _, field := range strings.Split(path, ".") {
		var next []any
		for _, value := range values {
			if list, _ := value.([]any); field == "*" {
				next = append(next, list...)
				continue
			}
			object, _ := value.(map[string]any)
			next = append(next, object[field])
		}
		values = next
	}
	return values
}
