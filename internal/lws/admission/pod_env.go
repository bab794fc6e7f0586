package admission

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// addEnvironment gives every container what it needs to find its group. Ours
// come first, so that the user's variables can refer to them.
func addEnvironment(pod *corev1.Pod, groupSize int) error {
	ours, err := environment(pod, groupSize)
	if err != nil {
		return err
	}
	for _, container := range containersOf(&pod.Spec) {
		container.Env = firstOfEach(ours, container.Env)
	}
	return nil
}

// containersOf returns the containers of a pod, init containers last.
func containersOf(spec *corev1.PodSpec) (all []*corev1.Container) {
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

func environment(pod *corev1.Pod, groupSize int) ([]corev1.EnvVar, error) {
	group, found := pod.Labels[lwsv1.GroupIndexLabelKey]
	if !found {
		//nolint:staticcheck // the text is part of the contract
		return nil, fmt.Errorf("Failure constructing environment variables, no group index label found for pod %s/%s", pod.Namespace, pod.Name)
	}
	leader := pod.Labels[lwsv1.SetNameLabelKey] + "-" + group
	if workload.HasKey(pod) {
		leader = hostOfLeader(pod)
	}
	address := leader + "." + pod.Spec.Subdomain + "." + pod.Namespace
	if known := pod.Annotations[lwsv1.LeaderAddressAnnotationKey]; known != "" && !IsLeader(pod) {
		address = known
	}
	if len(address) > maxNameLength {
		return nil, tooLong("leader address", pod, address)
	}
	return []corev1.EnvVar{
		{Name: lwsv1.LwsLeaderAddress, Value: address},
		{Name: lwsv1.LwsGroupSize, Value: strconv.Itoa(groupSize)},
		{Name: lwsv1.LwsWorkerIndex, Value: pod.Labels[lwsv1.WorkerIndexLabelKey]},
	}, nil
}

// firstOfEach joins two lists and keeps, of every name, the first variable.
func firstOfEach(ours, theirs []corev1.EnvVar) []corev1.EnvVar {
	seen := make(map[string]bool, len(ours)+len(theirs))
	return slices.DeleteFunc(slices.Concat(ours, theirs), func(variable corev1.EnvVar) bool {
		isAgain := seen[variable.Name]
		seen[variable.Name] = true
		return isAgain
	})
}
