package admission

import (
	"fmt"
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

// addTPUEnvironment tells the containers that ask for TPUs which hosts work
// together and which of them they are. A pod whose first such container says so
// itself is left alone.
func addTPUEnvironment(pod *corev1.Pod, groupSize int) error {
	containers := tpuContainers(&pod.Spec)
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

// slice is the run of pods whose TPUs work together: the leader or not, and the
// workers first to last.
type slice struct {
	leader      string // its name; the names of workers begin with it
	withLeader  bool
	first, last int
	index       int // of the pod itself among them
}

// sliceOf finds the pods that work together with pod: its group, or its
// subgroup. The pod has its labels.
func sliceOf(pod *corev1.Pod, groupSize int) (slice, error) {
	s, worker, leaderHasTPU := slice{leader: pod.Name}, 0, true
	if !IsLeader(pod) {
		s.leader, worker = identity.ParentAndOrdinal(pod.Name)
		leaderHasTPU = pod.Annotations[lwsv1.LeaderRequestsTPUsAnnotationKey] == "true"
	}
	if _, divided := pod.Annotations[lwsv1.SubGroupSizeAnnotationKey]; !divided {
		s.ofGroup(worker, groupSize, leaderHasTPU)
		return s, nil
	}
	part, err := countAnnotation(pod, lwsv1.SubGroupSizeAnnotationKey)
	if err != nil {
		return slice{}, err
	}
	if excludesLeader(pod) {
		s.ofExcluded(worker, part)
	} else {
		s.ofSubgroup(worker, groupSize, part, leaderHasTPU)
	}
	s.last = min(s.last, groupSize-1) // never a host that does not exist
	return s, nil
}

// ofGroup: all pods of the group, the leader only if it has TPUs.
func (s *slice) ofGroup(worker, groupSize int, leaderHasTPU bool) {
	s.withLeader, s.first, s.last, s.index = leaderHasTPU, 1, groupSize-1, worker
	if !leaderHasTPU {
		s.index--
	}
}

// ofExcluded: a leader that is in no subgroup stands alone; workers stand
// together part by part.
func (s *slice) ofExcluded(worker, part int) {
	if worker == 0 {
		s.withLeader, s.first, s.last = true, 1, 0
		return
	}
	s.workersOnly(worker, part)
}

// ofSubgroup: a leader without TPUs leaves its workers to themselves, counted
// from 1. With them it is one of subgroup 0, in place of a worker or, when the
// parts leave it over, on top.
func (s *slice) ofSubgroup(worker, groupSize, part int, leaderHasTPU bool) {
	subgroup := subgroupOf(worker, groupSize, part)
	switch {
	case !leaderHasTPU:
		s.workersOnly(worker, part)
	case leaderLeftOver(groupSize, part) && (worker == 0 || subgroup == 0):
		s.withLeader, s.first, s.last, s.index = true, 1, part, worker
	case leaderLeftOver(groupSize, part):
		s.workersOnly(worker, part)
	case subgroup == 0:
		s.withLeader, s.first, s.last, s.index = true, 1, part-1, worker
	default:
		s.first, s.last, s.index = part*subgroup, part*(subgroup+1)-1, worker%part
	}
}

func (s *slice) workersOnly(worker, part int) {
	subgroup := (worker - 1) / part
	s.first, s.last, s.index = part*subgroup+1, part*(subgroup+1), (worker-1)%part
}

const (
	// maxEnvironmentVariable is what Linux takes for one variable, with name,
	// equals sign and terminator. A container with more cannot be started.
	maxEnvironmentVariable = 128 * 1024

	// maxEnvironment is what the variables of all containers may add to a pod.
	// The API server stores no object beyond a megabyte and a half.
	maxEnvironment = 1024 * 1024
)

// lists are the values of TPU_WORKER_HOSTNAMES and TPU_PROCESS_ADDRESSES: every
// host once per port, in the order of the pods. It stops at the first host too
// many: a group size is a number, and must cost no more than its digits.
func (s *slice) lists(pod *corev1.Pod, ports []string) (hostnames, addresses string, err error) {
	var hosts, endpoints strings.Builder
	limit := min(maxEnvironmentVariable-len(tpuAddresses)-len("=\x00"), maxEnvironment/(2*len(ports)))
	add := func(name string) bool {
		host := name + "." + pod.Spec.Subdomain
		for _, port := range ports {
			if hosts.Len() > 0 {
				hosts.WriteByte(',')
				endpoints.WriteByte(',')
			}
			hosts.WriteString(host)
			endpoints.WriteString(host + ":" + port)
		}
		return endpoints.Len() <= limit
	}
	fits := !s.withLeader || add(s.leader)
	for worker := s.first; worker <= s.last && fits; worker++ {
		fits = add(s.leader + "-" + strconv.Itoa(worker))
	}
	if !fits {
		return "", "", fmt.Errorf("%s of pod %q would list %d processes and exceed the %d bytes a container can take: use a smaller size, subgroups, or fewer TPU containers in a pod",
			tpuAddresses, pod.Name, s.processes(len(ports)), limit)
	}
	return hosts.String(), endpoints.String(), nil
}

func (s *slice) processes(perPod int) int64 {
	pods := int64(s.last) - int64(s.first) + 1
	if s.withLeader {
		pods++
	}
	return pods * int64(perPod)
}
