package plane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A kwok that took over in the middle of a deletion left the pod terminating for
// ever; pods that are meant to stay must not be woken.
func TestOnlyPodsOwedAStepAreReplayed(t *testing.T) {
	now := metav1.Now()
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-000"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		change(p)
		return p
	}
	terminating := func(change func(*corev1.Pod)) *corev1.Pod {
		return pod(func(p *corev1.Pod) { p.DeletionTimestamp = &now; change(p) })
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"runs":           {pod(func(*corev1.Pod) {}), false},
		"starts":         {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), true},
		"is unscheduled": {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending; p.Spec.NodeName = "" }), false},
		"ends":           {terminating(func(*corev1.Pod) {}), true},
		"is held":        {terminating(func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} }), false},
		"hangs":          {terminating(func(p *corev1.Pod) { p.Annotations = map[string]string{hangOnDelete: "true"} }), false},
		"ends slowly":    {terminating(func(p *corev1.Pod) { p.Annotations = map[string]string{vanishAfter: "5s"} }), false},
	} {
		if got := owedStep(test.pod); got != test.want {
			t.Errorf("a pod that %s: got %t, want %t", name, got, test.want)
		}
	}
}
