package gang

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podrequests "k8s.io/component-helpers/resource"
)

// Resources is what a group of the given size requests: the leader once, and the worker for each
// other pod.
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

// requests is what a pod of the template requests, as the scheduler counts it.
func requests(template *corev1.PodTemplateSpec) corev1.ResourceList {
	spec := template.Spec.DeepCopy()
	askForLimits(spec.InitContainers)
	askForLimits(spec.Containers)
	pod := &corev1.Pod{Spec: *spec}
	askForPodLimits(pod)
	return podrequests.PodRequests(pod, podrequests.PodResourcesOptions{})
}

// askForPodLimits does the same for the limits of a pod as a whole, where no container has
// requests.
func askForPodLimits(pod *corev1.Pod) {
	whole := pod.Spec.Resources
	if whole == nil {
		return
	}
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
