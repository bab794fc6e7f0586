package gang

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const (
	// PodGroupAnnotationKey is where a pod names the PodGroup that it is placed with.
	PodGroupAnnotationKey = "scheduling.k8s.io/group-name"
	// FromSetAnnotationKey on an object names the annotations of its set that it
	// repeats, so that one that is taken away from the set is from the object too.
	// Who wrote a field does not tell: what a webhook adds is written by whom it met.
	FromSetAnnotationKey = "lockstep.dev/from-set"
	// volcanoPrefix begins what a set's annotations tell Volcano of its groups.
	volcanoPrefix = "volcano.sh/"
)

// Volcano places the pods of a PodGroup together.
type Volcano struct{}

// Name implements Scheduler.
func (Volcano) Name() string { return "volcano" }

// Kind implements Scheduler.
func (Volcano) Kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"}
}

// Resource implements Scheduler.
func (v Volcano) Resource() schema.GroupVersionResource {
	return v.Kind().GroupVersion().WithResource("podgroups")
}

// Tie implements Scheduler.
func (Volcano) Tie(pod metav1.Object, object string) {
	annotations := pod.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[PodGroupAnnotationKey] = object
	pod.SetAnnotations(annotations)
}

// Tied implements Scheduler.
func (Volcano) Tied(pod metav1.Object) string { return pod.GetAnnotations()[PodGroupAnnotationKey] }

// Object implements Scheduler.
func (v Volcano) Object(g Group) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v.Kind())
	object.SetNamespace(g.Namespace)
	object.SetName(g.Name)
	object.SetLabels(g.Labels)
	meant := v.Meant(g.Annotations)
	object.SetAnnotations(copied(meant))
	object.SetOwnerReferences(g.Owners)
	// Volcano skips its queue checks for a PodGroup without minResources: {} says that it needs none.
	spec := map[string]any{"minMember": int64(g.MinMember), "minResources": written(g.MinResources)}
	if queue := meant[lwsv1.QueueNameAnnotationKey]; queue != "" {
		spec["queue"] = queue
	}
	object.Object["spec"] = spec
	return object
}

// Meant implements Scheduler.
func (Volcano) Meant(annotations map[string]string) map[string]string {
	var meant map[string]string
	for key, value := range annotations {
		if !strings.HasPrefix(key, volcanoPrefix) && (key != lwsv1.QueueNameAnnotationKey || value == "") {
			continue
		}
		if meant == nil {
			meant = map[string]string{}
		}
		meant[key] = value
	}
	return meant
}

// copied are the annotations of a PodGroup of whose set these are meant for Volcano.
// The queue is a field.
func copied(meant map[string]string) map[string]string {
	if len(meant) == 0 {
		return nil
	}
	annotations := map[string]string{FromSetAnnotationKey: strings.Join(slices.Sorted(maps.Keys(meant)), ",")}
	for key, value := range meant {
		if key != lwsv1.QueueNameAnnotationKey {
			annotations[key] = value
		}
	}
	return annotations
}

func written(resources corev1.ResourceList) map[string]any {
	all := make(map[string]any, len(resources))
	for name, quantity := range resources {
		all[string(name)] = quantity.String()
	}
	return all
}

// InStep implements Scheduler. Fields of which nothing is wanted are Volcano's, unless
// they came from the set.
func (Volcano) InStep(have, want *unstructured.Unstructured) bool {
	return within(have.GetLabels(), want.GetLabels()) && within(have.GetAnnotations(), want.GetAnnotations()) &&
		field(have, "minMember") == field(want, "minMember") &&
		(field(want, "queue") == nil || field(have, "queue") == field(want, "queue")) &&
		hasMinResources(have) && equality.Semantic.DeepEqual(read(have), read(want))
}

// hasMinResources reports whether a PodGroup sets minResources, if only to {}.
func hasMinResources(object *unstructured.Unstructured) bool {
	spec, _ := object.Object["spec"].(map[string]any)
	_, set := spec["minResources"]
	return set
}

// within tells whether an object says what is wanted of it, and nothing of what its
// set does not say any more. One that another implementation made does not tell what
// came from the set, and need not.
func within(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; key != FromSetAnnotationKey && (!ok || got != value) {
			return false
		}
	}
	said := strings.Split(want[FromSetAnnotationKey], ",")
	for key := range strings.SplitSeq(have[FromSetAnnotationKey], ",") {
		if key != "" && !slices.Contains(said, key) {
			return false
		}
	}
	return true
}

// field is a number or text of the spec, or nil.
func field(object *unstructured.Unstructured, name string) any {
	spec, _ := object.Object["spec"].(map[string]any)
	switch value := spec[name].(type) {
	case int64, string:
		return value
	case float64:
		return int64(value)
	}
	return nil
}

// read is the minResources of an object, however their quantities are written.
// What is no quantity is nothing anybody could want.
func read(object *unstructured.Unstructured) corev1.ResourceList {
	spec, _ := object.Object["spec"].(map[string]any)
	listed, _ := spec["minResources"].(map[string]any)
	resources := corev1.ResourceList{}
	for name, value := range listed {
		text, _ := value.(string)
		if number, ok := value.(int64); ok {
			text = resource.NewQuantity(number, resource.DecimalSI).String()
		}
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil
		}
		resources[corev1.ResourceName(name)] = quantity
	}
	return resources
}
