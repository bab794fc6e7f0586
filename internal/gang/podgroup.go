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
	"k8s.io/apimachinery/pkg/runtime"
	podrequests "k8s.io/component-helpers/resource"

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

// podGroupSpec has the fields of a PodGroup that follow from its group.
type podGroupSpec struct {
	MinMember int32 `json:"minMember"`
	// MinResources is {} for a group that requests nothing: Volcano skips its queue checks without the field.
	MinResources *corev1.ResourceList `json:"minResources,omitempty"`
	Queue        string               `json:"queue,omitempty"`
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
	resources := corev1.ResourceList{}
	maps.Copy(resources, g.MinResources)
	spec, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&podGroupSpec{
		MinMember: g.MinMember, MinResources: &resources, Queue: meant[lwsv1.QueueNameAnnotationKey],
	}) // the fields can all be encoded
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

// copied are the annotations of a PodGroup whose set has those that are meant. The queue is a field.
func copied(meant map[string]string) map[string]string {
	if len(meant) == 0 {
		return nil
	}
	annotations := maps.Clone(meant)
	delete(annotations, lwsv1.QueueNameAnnotationKey)
	annotations[FromSetAnnotationKey] = strings.Join(slices.Sorted(maps.Keys(meant)), ",")
	return annotations
}

// InStep reports whether a PodGroup says all that it should. Other fields are Volcano's, unless they came from the set.
func InStep(have, want *unstructured.Unstructured) bool {
	is, isReadable := read(have)
	meant, _ := read(want)
	return isReadable && within(have.GetLabels(), want.GetLabels()) && within(have.GetAnnotations(), want.GetAnnotations()) &&
		is.MinMember == meant.MinMember && (meant.Queue == "" || is.Queue == meant.Queue) &&
		is.MinResources != nil && equality.Semantic.DeepEqual(is.MinResources, meant.MinResources)
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

// read reports whether the spec of a PodGroup can be read: text may be no quantity.
func read(object *unstructured.Unstructured) (spec podGroupSpec, isReadable bool) {
	fields, _ := object.Object["spec"].(map[string]any)
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec)
	return spec, err == nil
}

// Resources returns the requests of a group of a size: the leader once, and the worker for each other pod.
func Resources(leader, worker *corev1.PodTemplateSpec, size int32) corev1.ResourceList {
	total := requests(leader)
	for name, quantity := range requests(worker) {
		quantity.Mul(int64(max(size-1, 0)))
		sum := total[name]
		sum.Add(quantity)
		total[name] = sum
	}
	maps.DeleteFunc(total, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
	return total
}

// Accelerators returns the extended resources among requests. It changes these.
func Accelerators(requests corev1.ResourceList) corev1.ResourceList {
	maps.DeleteFunc(requests, func(name corev1.ResourceName, _ resource.Quantity) bool { return !isAccelerator(name) })
	return requests
}

// AcceleratorsOf returns the extended resources that a pod requests.
func AcceleratorsOf(pod *corev1.Pod) corev1.ResourceList {
	return Accelerators(podrequests.PodRequests(pod, podrequests.PodResourcesOptions{}))
}

// isAccelerator reports whether a resource is an extended one: only device plugins and administrators add these.
func isAccelerator(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// requests returns the requests of a pod of the template, as the scheduler counts them.
func requests(template *corev1.PodTemplateSpec) corev1.ResourceList {
	spec := template.Spec.DeepCopy()
	askForLimits(spec.InitContainers)
	askForLimits(spec.Containers)
	pod := &corev1.Pod{Spec: *spec}
	if spec.Resources != nil {
		askForPodLimits(pod)
	}
	return podrequests.PodRequests(pod, podrequests.PodResourcesOptions{})
}

// askForPodLimits does the same for the limits of a pod as a whole, where no container has requests.
func askForPodLimits(pod *corev1.Pod) {
	whole := pod.Spec.Resources
	asked := podrequests.AggregateContainerRequests(pod, podrequests.PodResourcesOptions{})
	requests := corev1.ResourceList{}
	for name, limit := range whole.Limits {
		if _, known := asked[name]; !known && podrequests.IsSupportedPodLevelResource(name) {
			requests[name] = limit
		}
	}
	maps.Copy(requests, whole.Requests)
	whole.Requests = requests
}

// askForLimits fills in requests as the API server does when the pod is created: a container
// that only limits a resource requests as much of it.
func askForLimits(containers []corev1.Container) {
	for i := range containers {
		requests := corev1.ResourceList{}
		maps.Copy(requests, containers[i].Resources.Limits)
		maps.Copy(requests, containers[i].Resources.Requests)
		containers[i].Resources.Requests = requests
	}
}
