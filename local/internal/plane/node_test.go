package plane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSimulatedNodesDiffer(t *testing.T) {
	names, addresses, racks := map[string]bool{}, map[string]bool{}, map[string]string{}
	for i := range 600 {
		node := simulatedNode(i)
		names[node.Name] = true
		addresses[node.Status.Addresses[0].Address] = true
		if node.Labels[corev1.LabelHostname] != node.Name {
			t.Errorf("%s: host name label %q", node.Name, node.Labels[corev1.LabelHostname])
		}
		if node.Annotations[simulatedKey] != simulatedValue {
			t.Errorf("%s lacks kwok's annotation", node.Name)
		}
		rack, zone := node.Labels[RackLabel], node.Labels[corev1.LabelTopologyZone]
		if before, ok := racks[rack]; ok && before != zone {
			t.Errorf("rack %s is in %s and in %s", rack, before, zone)
		}
		racks[rack] = zone
	}
	if len(names) != 600 || len(addresses) != 600 || len(racks) != 600/nodesPerRack {
		t.Errorf("%d names, %d addresses, %d racks", len(names), len(addresses), len(racks))
	}
}

func TestTakesPods(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"as created":   {func(*corev1.Node) {}, true},
		"tainted":      {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady}} }, false},
		"not ready":    {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
		"no condition": {func(n *corev1.Node) { n.Status.Conditions = nil }, false},
	} {
		node := simulatedNode(0)
		c.change(node)
		if got := takesPods(node); got != c.want {
			t.Errorf("%s: takesPods() = %t, want %t", name, got, c.want)
		}
	}
}

// A new kwok process must finish the deletions of the old one, and must not touch pods that a test
// keeps terminating.
func TestOnlyPodsWithANextStepAreReplayed(t *testing.T) {
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
