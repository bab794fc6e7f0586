package admission

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
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

// addTPUEnvironment tells the containers that ask for TPUs which hosts work together and which of them they are. A pod
// whose first such container says so itself is left alone.
func addTPUEnvironment(pod *corev1.Pod, groupSize int) error {
	containers := slices.DeleteFunc(containersOf(&pod.Spec), func(c *corev1.Container) bool { return !workload.RequestsTPU(c) })
	if len(containers) == 0 || defines(containers[0], tpuHostnames) || defines(containers[0], tpuID) {
		return nil
	}
	if _, divided := pod.Annotations[lwsv1.SubGroupSizeAnnotationKey]; divided {
		// One process of each pod gets the hosts of a subgroup.
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

func defines(container *corev1.Container, name string) bool {
	return slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == name })
}

// portOf is the port the user gave to the k-th container, or the k-th from 8476.
// One that comes from elsewhere cannot be known here.
func portOf(container *corev1.Container, k int) string {
	given := slices.IndexFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == tpuPort })
	if given >= 0 && container.Env[given].Value != "" {
		return container.Env[given].Value
	}
	return strconv.Itoa(tpuFirstPort + k)
}

// slice is the run of pods whose TPUs work together: by worker index, from first to last. The leader has the index 0.
type slice struct {
	leader      string // its host name
	workers     string // what the names of workers begin with
	first, last int
	index       int // of the pod itself among them
}

// sliceOf finds the pods that work together with pod: its group, or its subgroup. A leader
// without TPUs leaves its workers to themselves.
func sliceOf(pod *corev1.Pod, groupSize int) (slice, error) {
	s, worker, leaderHasTPU := slice{workers: workload.HostName(pod)}, 0, true // a Hash leader has no name yet
	if !IsLeader(pod) {
		s.workers, worker = identity.ParentAndOrdinal(pod.Name)
		leaderHasTPU = pod.Annotations[lwsv1.LeaderRequestsTPUsAnnotationKey] == "true"
	}
	s.leader = hostOfLeader(pod, s.workers)
	part := groupSize
	if _, divided := pod.Annotations[lwsv1.SubGroupSizeAnnotationKey]; divided {
		var err error
		if part, err = countAnnotation(pod, lwsv1.SubGroupSizeAnnotationKey); err != nil {
			return slice{}, err
		}
	}
	leftOver, excluded := leaderLeftOver(groupSize, part), excludesLeader(pod)
	switch {
	case excluded && worker == 0: // the leader alone
		s.first, s.last = 0, 0
	case leftOver && leaderHasTPU && !excluded && worker <= part: // subgroup 0, and the leader on top
		s.first, s.last = 0, part
	case leftOver, excluded, !leaderHasTPU: // workers alone, counted from 1
		s.first = (worker-1)/part*part + 1
		s.last = s.first + part - 1
	default:
		s.first = worker / part * part
		s.last = s.first + part - 1
	}
	s.index = worker - s.first
	s.last = min(s.last, groupSize-1) // never a host that does not exist
	return s, nil
}

const (
	// maxEnvironmentVariable is what Linux takes for one variable, with name,
	// equals sign and terminator. A container with more cannot be started.
	maxEnvironmentVariable = 128 * 1024

	// maxEnvironment is what the variables of all containers may add to a pod.
	// The API server stores no object beyond a megabyte and a half.
	maxEnvironment = 1024 * 1024
)

// lists are the values of TPU_WORKER_HOSTNAMES and TPU_PROCESS_ADDRESSES: every host once per port, in the order of the
// pods. It stops at the first host too many: a group size is a number, and must cost no more than its digits.
func (s *slice) lists(pod *corev1.Pod, ports []string) (hostnames, addresses string, err error) {
	var hosts, endpoints []string
	limit := min(maxEnvironmentVariable-len(tpuAddresses)-len("=\x00"), maxEnvironment/(2*len(ports)))
	length := -len(",")
	for worker := s.first; worker <= s.last; worker++ {
		host := s.leader + "." + pod.Spec.Subdomain
		if worker > 0 {
			host = s.workers + "-" + strconv.Itoa(worker) + "." + pod.Spec.Subdomain
		}
		for _, port := range ports {
			if length += len(host) + len(":") + len(port) + len(","); length > limit {
				return "", "", fmt.Errorf("%s of pod %q would list %d processes and exceed the %d bytes a container can take: use a smaller size, subgroups, or fewer TPU containers in a pod",
					tpuAddresses, pod.Name, (s.last-s.first+1)*len(ports), limit)
			}
			hosts, endpoints = append(hosts, host), append(endpoints, host+":"+port)
		}
	}
	return strings.Join(hosts, ","), strings.Join(endpoints, ","), nil
}
