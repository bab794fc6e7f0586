package admission

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// What a TPU runtime reads from its environment.
const (
	tpuHostnames = "TPU_WORKER_HOSTNAMES"
	tpuID        = "TPU_WORKER_ID"
	tpuName      = "TPU_NAME"
	tpuAddresses = "TPU_PROCESS_ADDRESSES"
	tpuPort      = "TPU_PROCESS_PORT"

	tpuFirstPort = 8476
)

// addTPUEnvironment tells the containers that ask for TPUs which hosts work
// together and which of them they are. A pod whose first such container says so
// itself is left alone.
func addTPUEnvironment(pod *corev1.Pod, groupSize int) error {
	containers := tpuContainers(&pod.Spec)
	if len(containers) == 0 || defines(containers[0], tpuHostnames) || defines(containers[0], tpuID) {
		return nil
	}
	if _, divided := pod.Annotations[lwsv1.SubGroupSizeAnnotationKey]; divided {
		// The hosts of a subgroup are told to one process each.
		containers = containers[:1]
	}
	slice, err := sliceOf(pod, groupSize)
	if err != nil {
		return err
	}
	ports := make([]string, len(containers))
	for k, container := range containers {
		ports[k] = portOf(container, k)
	}
	hostnames, addresses, err := slice.lists(pod, ports)
	if err != nil {
		return err
	}
	for k, container := range containers {
		own := []corev1.EnvVar{
			{Name: tpuHostnames, Value: hostnames},
			{Name: tpuID, Value: strconv.Itoa(slice.index*len(containers) + k)},
			{Name: tpuName, Value: slice.leader},
			{Name: tpuAddresses, Value: addresses},
		}
		if !defines(container, tpuPort) {
			own = append(own, corev1.EnvVar{Name: tpuPort, Value: ports[k]})
		}
		container.Env = append(container.Env, own...)
	}
	return nil
}

// tpuContainers are the containers that ask for TPUs, init containers last.
func tpuContainers(spec *corev1.PodSpec) []*corev1.Container {
	var found []*corev1.Container
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			if workload.RequestsTPU(&list[i]) {
				found = append(found, &list[i])
			}
		}
	}
	return found
}

func defines(container *corev1.Container, name string) bool {
	return variable(container, name) != nil
}

func variable(container *corev1.Container, name string) *corev1.EnvVar {
	for i := range container.Env {
		if container.Env[i].Name == name {
			return &container.Env[i]
		}
	}
	return nil
}

// portOf is the port the user gave to the k-th container, or the k-th from 8476.
// One that comes from elsewhere cannot be known here.
func portOf(container *corev1.Container, k int) string {
	if given := variable(container, tpuPort); given != nil && given.Value != "" {
		return given.Value
	}
	return strconv.Itoa(tpuFirstPort + k)
}
