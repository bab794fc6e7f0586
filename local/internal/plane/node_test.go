package plane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSimulatedNodesAreApart(t *testing.T) {
	names, addresses, racks := map[string]bool{}, map[string]bool{}, map[string]string{}
	for i := range 600 {
		node := simulatedNode(i)
		names[node.Name] = true
		addresses[node.Status.Addresses[0].Address] = true
		if node.Labels[corev1.LabelHostname] != node.Name {
			t.Errorf("%s: host name label %q", node.Name, node.Labels[corev1.LabelHostname])
		}
		if node.Annotations[simulatedKey] != simulatedValue {
			t.Errorf("%s is not kwok's", node.Name)
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
		"as made":      {func(*corev1.Node) {}, true},
		"tainted":      {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady}} }, false},
		"not ready":    {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
		"says nothing": {func(n *corev1.Node) { n.Status.Conditions = nil }, false},
	} {
		node := simulatedNode(0)
		c.change(node)
		if got := takesPods(node); got != c.want {
			t.Errorf("%s: takesPods() = %t, want %t", name, got, c.want)
		}
	}
}
