package pvc_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestChoiceOf(t *testing.T) {
	free, attached := pvc.Choice{CompletedFree: true}, pvc.Choice{AttachedHolds: true}
	for _, tt := range []struct {
		name   string
		claim  map[string]string
		labels map[string]string
		want   pvc.Choice
	}{
		{"nobody chose", nil, nil, pvc.Choice{}},
		{"the claim frees", map[string]string{pvc.CompletedKey: "free"}, nil, free},
		{"the namespace frees", nil, map[string]string{pvc.CompletedKey: "free"}, free},
		{"the claim holds all the same", map[string]string{pvc.CompletedKey: "hold"}, map[string]string{pvc.CompletedKey: "free"}, pvc.Choice{}},
		{"a slip of the pen chooses nothing", map[string]string{pvc.CompletedKey: "Free"}, map[string]string{pvc.CompletedKey: "free"}, free},
		{"a slip of the pen frees nothing", map[string]string{pvc.CompletedKey: "yes"}, nil, pvc.Choice{}},
		{"the claim holds by its volume", map[string]string{pvc.AttachedKey: "hold"}, nil, attached},
		{"the namespace holds by volumes", nil, map[string]string{pvc.AttachedKey: "hold"}, attached},
		{"the claim does not", map[string]string{pvc.AttachedKey: "free"}, map[string]string{pvc.AttachedKey: "hold"}, pvc.Choice{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := claim("c")
			c.Annotations = tt.claim
			if got := pvc.ChoiceOf(c, tt.labels); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// containers puts statuses of containers on a pod.
func containers(states ...corev1.ContainerState) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		for _, state := range states {
			o.Status.ContainerStatuses = append(o.Status.ContainerStatuses, corev1.ContainerStatus{State: state})
		}
	}
}

var (
	running    = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	terminated = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	waiting    = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
)

// completed is a pod that has run to its end.
func completed(o *corev1.Pod) {
	phase(corev1.PodSucceeded)(o)
	containers(terminated)(o)
}

func TestCompleted(t *testing.T) {
	initial := func(state corev1.ContainerState) func(*corev1.Pod) {
		return func(o *corev1.Pod) { o.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: state}} }
	}
	failed := phase(corev1.PodFailed)
	for _, tt := range []struct {
		name  string
		edits []func(*corev1.Pod)
		want  bool
	}{
		{"it runs", []func(*corev1.Pod){containers(running)}, false},
		{"its containers ended, and will start again", []func(*corev1.Pod){containers(terminated)}, false},
		{"it succeeded", []func(*corev1.Pod){completed}, true},
		{"it failed", []func(*corev1.Pod){failed, containers(terminated, terminated)}, true},
		{"it failed before it began", []func(*corev1.Pod){failed, initial(terminated), containers(waiting)}, true},
		{"its node is out of reach, and it runs there", []func(*corev1.Pod){failed, containers(terminated, running)}, false},
		{"its sidecar runs", []func(*corev1.Pod){failed, initial(running), containers(terminated)}, false},
		{"no kubelet ever said anything of it", []func(*corev1.Pod){failed}, false},
		{"it was turned away, says the kubelet", []func(*corev1.Pod){failed, containers(waiting)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := pvc.Completed(pod("web", nil, tt.edits...)); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
