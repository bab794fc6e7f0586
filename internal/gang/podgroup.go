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

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const (
	// FromSetAnnotationKey on a PodGroup names the annotations of its set that it repeats: one
	// that is removed from the set is removed from the PodGroup too. Managed fields cannot say
	// that, since a webhook adds fields under the name of the writer.
	FromSetAnnotationKey = "lockstep.dev/from-set"
	// volcanoPrefix begins the annotations of a set that are meant for Volcano.
	volcanoPrefix = "volcano.sh/"
)

// Group is what Volcano is told of one group.
type Group struct {
	Namespace, Name string
	// Labels are those of the group, and Annotations those of the set.
	Labels, Annotations map[string]string
	// Owners is the leader: the PodGroup lives as long as that very pod.
	Owners []metav1.OwnerReference
	// MinMember is the number of pods to place together.
	MinMember int32
	// MinResources is what the whole group requests.
	MinResources corev1.ResourceList
}

// Object is the PodGroup of a group.
func Object(g Group) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(Kind)
	object.SetNamespace(g.Namespace)
	object.SetName(g.Name)
	object.SetLabels(g.Labels)
	meant := Meant(g.Annotations)
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

// Meant are those of a set's annotations that are meant for Volcano.
func Meant(annotations map[string]string) map[string]string {
	meant := maps.Clone(annotations)
	maps.DeleteFunc(meant, func(key, value string) bool {
		return !strings.HasPrefix(key, volcanoPrefix) && (key != lwsv1.QueueNameAnnotationKey || value == "")
	})
	return meant
}

// copied are the annotations of a PodGroup whose set has those that are meant. The queue is a
// field.
func copied(meant map[string]string) map[string]string {
	if len(meant) == 0 {
		return nil
	}
	annotations := maps.Clone(meant)
	delete(annotations, lwsv1.QueueNameAnnotationKey)
	annotations[FromSetAnnotationKey] = strings.Join(slices.Sorted(maps.Keys(meant)), ",")
	return annotations
}

func written(resources corev1.ResourceList) map[string]any {
	all := make(map[string]any, len(resources))
	for name, quantity := range resources {
		all[string(name)] = quantity.String()
	}
	return all
}

// InStep reports whether a PodGroup says all that it should. Other fields are Volcano's, unless
// they came from the set.
func InStep(have, want *unstructured.Unstructured) bool {
	requested, isSet := read(have)
	wanted, _ := read(want)
	return within(have.GetLabels(), want.GetLabels()) && within(have.GetAnnotations(), want.GetAnnotations()) &&
		field(have, "minMember") == field(want, "minMember") &&
		(field(want, "queue") == nil || field(have, "queue") == field(want, "queue")) &&
		isSet && equality.Semantic.DeepEqual(requested, wanted)
}

// within reports whether an object says what is wanted of it, and nothing that its set no longer
// says. A PodGroup of another implementation does not say what came from the set, and need not.
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

// read is the minResources of a PodGroup, however their quantities are written, and whether they
// are set, if only to {}. Text that is no quantity counts as not set.
func read(object *unstructured.Unstructured) (resources corev1.ResourceList, isSet bool) {
	spec, _ := object.Object["spec"].(map[string]any)
	listed, isSet := spec["minResources"].(map[string]any)
	resources = corev1.ResourceList{}
	for name, value := range listed {
		text, _ := value.(string)
		if number, ok := value.(int64); ok {
			text = resource.NewQuantity(number, resource.DecimalSI).String()
		}
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, false
		}
		resources[corev1.ResourceName(name)] = quantity
	}
	return resources, isSet
}
