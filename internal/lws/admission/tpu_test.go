package admission_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

// podOf is pod w of group 0 of set w, divided by part unless that is 0.
func podOf(w, size, part int, policy lwsv1.SubGroupPolicyType, changes ...podChange) *corev1.Pod {
	changes = append([]podChange{withPodAnnotation(lwsv1.SizeAnnotationKey, strconv.Itoa(size))}, changes...)
	if part != 0 {
		changes = append(changes, withPodAnnotation(lwsv1.SubGroupSizeAnnotationKey, strconv.Itoa(part)))
	}
	if policy != "" {
		changes = append(changes, withPodAnnotation(lwsv1.SubGroupPolicyTypeAnnotationKey, string(policy)))
	}
	if w == 0 {
		return newLeader("w-0", changes...)
	}
	return newWorker("w-0-"+strconv.Itoa(w), changes...)
}

func tpus(quantity string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{"google.com/tpu": resource.MustParse(quantity)}}
}

// withTPUContainers replaces the containers with so many that ask for TPUs.
func withTPUContainers(n int) podChange {
	return func(p *corev1.Pod) {
		p.Spec.Containers = nil
		for i := range n {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: tpus("4")})
		}
	}
}

var leaderTPU = withPodAnnotation(lwsv1.LeaderRequestsTPUsAnnotationKey, "true")

func env(c corev1.Container) map[string]string {
	values := map[string]string{}
	for _, variable := range c.Env {
		values[variable.Name] = variable.Value
	}
	return values
}

// Each row gives, for every pod of a group that has TPUs, its id and its hosts
// by the name of the pod.
func TestTPUSlices(t *testing.T) {
	const (
		both = lwsv1.SubGroupPolicyTypeLeaderWorker
		only = lwsv1.SubGroupPolicyTypeLeaderExcluded
	)
	for _, tt := range []struct {
		name       string
		size, part int
		policy     lwsv1.SubGroupPolicyType
		leaderless bool
		want       map[int]string
	}{
		{"size 3", 3, 0, "", false, map[int]string{0: "0 w-0,w-0-1,w-0-2", 1: "1 w-0,w-0-1,w-0-2", 2: "2 w-0,w-0-1,w-0-2"}},
		{"size 3, leader without", 3, 0, "", true, map[int]string{1: "0 w-0-1,w-0-2", 2: "1 w-0-1,w-0-2"}},
		{"size 4 by 2", 4, 2, both, false, map[int]string{0: "0 w-0,w-0-1", 1: "1 w-0,w-0-1", 2: "0 w-0-2,w-0-3", 3: "1 w-0-2,w-0-3"}},
		{"size 5 by 2, leader without", 5, 2, both, true, map[int]string{1: "0 w-0-1,w-0-2", 2: "1 w-0-1,w-0-2", 3: "0 w-0-3,w-0-4", 4: "1 w-0-3,w-0-4"}},

		// The leader on top of subgroup 0: one slice of three, the rest as ever.
		{"size 5 by 2", 5, 2, both, false, map[int]string{
			0: "0 w-0,w-0-1,w-0-2", 1: "1 w-0,w-0-1,w-0-2", 2: "2 w-0,w-0-1,w-0-2", 3: "0 w-0-3,w-0-4", 4: "1 w-0-3,w-0-4",
		}},
		// The leader in no subgroup: a slice of its own.
		{"size 5 by 2, leader excluded", 5, 2, only, false, map[int]string{
			0: "0 w-0", 1: "0 w-0-1,w-0-2", 2: "1 w-0-1,w-0-2", 3: "0 w-0-3,w-0-4", 4: "1 w-0-3,w-0-4",
		}},
		// Counted without the leader, the last slice comes out short.
		{"size 4 by 2, leader without", 4, 2, both, true, map[int]string{1: "0 w-0-1,w-0-2", 2: "1 w-0-1,w-0-2", 3: "0 w-0-3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := map[int]string{}
			for w := range tt.size {
				changes := []podChange{withTPUContainers(1), leaderTPU}
				if tt.leaderless {
					if w == 0 {
						continue
					}
					changes = changes[:1]
				}
				values := env(mutate(t, podOf(w, tt.size, tt.part, tt.policy, changes...)).Spec.Containers[0])
				hosts := values["TPU_WORKER_HOSTNAMES"]
				got[w] = values["TPU_WORKER_ID"] + " " + strings.ReplaceAll(hosts, ".w", "")
				if want := strings.ReplaceAll(hosts, ".w", ".w:8476"); values["TPU_PROCESS_ADDRESSES"] != want {
					t.Errorf("pod %d: addresses %q, want %q", w, values["TPU_PROCESS_ADDRESSES"], want)
				}
				if values["TPU_NAME"] != "w-0" || values["TPU_PROCESS_PORT"] != "8476" {
					t.Errorf("pod %d: name %q, port %q, want w-0 and 8476", w, values["TPU_NAME"], values["TPU_PROCESS_PORT"])
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Of a subgroup, the first container alone gets the hosts.
func TestTPUVariablesOfASubgroup(t *testing.T) {
	pod := mutate(t, podOf(0, 4, 2, "", withTPUContainers(2)))
	want := []corev1.EnvVar{
		{Name: "LWS_LEADER_ADDRESS", Value: "w-0.w.ns"}, {Name: "LWS_GROUP_SIZE", Value: "4"}, {Name: "LWS_WORKER_INDEX", Value: "0"},
		{Name: "TPU_WORKER_HOSTNAMES", Value: "w-0.w,w-0-1.w"}, {Name: "TPU_WORKER_ID", Value: "0"}, {Name: "TPU_NAME", Value: "w-0"},
		{Name: "TPU_PROCESS_ADDRESSES", Value: "w-0.w:8476,w-0-1.w:8476"}, {Name: "TPU_PROCESS_PORT", Value: "8476"},
	}
	if diff := cmp.Diff(want, pod.Spec.Containers[0].Env); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:3], pod.Spec.Containers[1].Env); diff != "" {
		t.Errorf("second container (-want +got):\n%s", diff)
	}
}

// A row has the TPU_WORKER_ID and the TPU_PROCESS_PORT of the container of worker 1, and those of
// its init container. The leader has one TPU as well.
func TestTPUIsAskedFor(t *testing.T) {
	requests := corev1.ResourceRequirements{Requests: corev1.ResourceList{"google.com/tpu": resource.MustParse("1")}}
	with := func(name, value string) corev1.Container {
		return corev1.Container{Resources: tpus("1"), Env: []corev1.EnvVar{{Name: name, Value: value}}}
	}
	none, one := corev1.Container{}, corev1.Container{Resources: tpus("1")}
	for _, tt := range []struct {
		name            string
		main, start     corev1.Container
		want, wantStart string
	}{
		{"by limit", one, none, "1 8476", " "},
		{"by request", corev1.Container{Resources: requests}, none, "1 8476", " "},
		{"none of it", corev1.Container{Resources: tpus("0")}, none, " ", " "},
		{"before the start", none, one, " ", "1 8476"},
		{"init containers last", one, one, "2 8476", "3 8477"},
		{"with a port", with("TPU_PROCESS_PORT", "9"), none, "1 9", " "},
		{"with hosts", with("TPU_WORKER_HOSTNAMES", ""), none, " ", " "},
		{"with an id", with("TPU_WORKER_ID", "7"), none, "7 ", " "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := mutate(t, podOf(1, 2, 0, "", leaderTPU, func(p *corev1.Pod) {
				p.Spec.Containers, p.Spec.InitContainers = []corev1.Container{tt.main}, []corev1.Container{tt.start}
			}))
			main, start := env(pod.Spec.Containers[0]), env(pod.Spec.InitContainers[0])
			for _, values := range []map[string]string{main, start} {
				if port := values["TPU_PROCESS_PORT"]; port != "" && strings.Count(values["TPU_PROCESS_ADDRESSES"], ":"+port) != 2 {
					t.Errorf("addresses %q, want two with port %s", values["TPU_PROCESS_ADDRESSES"], port)
				}
			}
			got, gotStart := main["TPU_WORKER_ID"]+" "+main["TPU_PROCESS_PORT"], start["TPU_WORKER_ID"]+" "+start["TPU_PROCESS_PORT"]
			if got != tt.want || gotStart != tt.wantStart {
				t.Errorf("got id and port %q, and %q of the init container", got, gotStart)
			}
		})
	}
}

// A size is a few digits in an annotation; the list of hosts it asks for may not
// fit into any machine.
func TestTPUOfAbsurdGroups(t *testing.T) {
	const max = 2147483647
	const advice = "use a smaller size, subgroups, or fewer TPU containers in a pod"
	exceeds := func(processes, bytes int) string {
		return fmt.Sprintf(`TPU_PROCESS_ADDRESSES of pod "w-0-1" would list %d processes and exceed the %d bytes a container can take: %s`, processes, bytes, advice)
	}
	tests := []struct {
		name       string
		size, part int
		containers int
		refused    string
	}{
		{"as large as it gets", 8000, 0, 1, ""},
		{"too many hosts", max, 0, 1, exceeds(max-1, 131049)},
		{"too many containers", 100, 0, 1000, exceeds(99000, 524)},
		{"small subgroups of a large group", max, 1, 1, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := admission.MutatePod(podOf(1, tt.size, tt.part, "", withTPUContainers(tt.containers)))
			if got := fmt.Sprint(err); err != nil && got != tt.refused || err == nil && tt.refused != "" {
				t.Errorf("got  %v\nwant %s", err, tt.refused)
			}
		})
	}
}
