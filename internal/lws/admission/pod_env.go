package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// addEnvironment gives every container what it needs to find its group. Ours
// come first, so that the user's variables can refer to them.
func addEnvironment(pod *corev1.Pod) error {
	ours, err := environment(pod)
	if err != nil {
		return err
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Env = firstOfEach(ours, pod.Spec.Containers[i].Env)
	}
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Env = firstOfEach(ours, pod.Spec.InitContainers[i].Env)
	}
	return nil
}

func environment(pod *corev1.Pod) ([]corev1.EnvVar, error) {
	for _, needed := range []struct {
		in        map[string]string
		key, what string
	}{
		{pod.Labels, lwsv1.SetNameLabelKey, "name label"},
		{pod.Labels, lwsv1.GroupIndexLabelKey, "group index label"},
		{pod.Annotations, lwsv1.SizeAnnotationKey, "size annotation"},
		{pod.Labels, lwsv1.WorkerIndexLabelKey, "worker index label"},
	} {
		if _, found := needed.in[needed.key]; !found {
			//nolint:staticcheck // the text is part of the contract
			return nil, fmt.Errorf("Failure constructing environment variables, no %s found for pod %s/%s", needed.what, pod.Namespace, pod.Name)
		}
	}
	address := fmt.Sprintf("%s-%s.%s.%s", pod.Labels[lwsv1.SetNameLabelKey], pod.Labels[lwsv1.GroupIndexLabelKey],
		pod.Spec.Subdomain, pod.Namespace)
	return []corev1.EnvVar{
		{Name: lwsv1.LwsLeaderAddress, Value: address},
		{Name: lwsv1.LwsGroupSize, Value: pod.Annotations[lwsv1.SizeAnnotationKey]},
		{Name: lwsv1.LwsWorkerIndex, Value: pod.Labels[lwsv1.WorkerIndexLabelKey]},
	}, nil
}

// firstOfEach joins two lists and keeps, of every name, the first variable.
func firstOfEach(ours, theirs []corev1.EnvVar) []corev1.EnvVar {
	joined := make([]corev1.EnvVar, 0, len(ours)+len(theirs))
	seen := make(map[string]bool, len(ours)+len(theirs))
	for _, list := range [][]corev1.EnvVar{ours, theirs} {
		for _, variable := range list {
			if !seen[variable.Name] {
				seen[variable.Name] = true
				joined = append(joined, variable)
			}
		}
	}
	return joined
}
