package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/gang"
)

// unknown is shown for what could not be read.
const unknown = "?"

// Node is a node with pods of a group.
type Node struct {
	Name string `json:"name"`
	// State is Ready, NotReady, Gone, or ? if the node could not be read.
	State string `json:"state"`
	// Ready is the condition of the node.
	Ready    *corev1.NodeCondition `json:"ready,omitempty"`
	Cordoned bool                  `json:"cordoned,omitempty"`
	// CordonedAt is absent if the node does not say since when.
	CordonedAt *metav1.Time `json:"cordonedAt,omitempty"`
	// Requested are the accelerators that pods of the group request. Allocatable are those that the node has for all pods.
	Requested   corev1.ResourceList `json:"requested,omitempty"`
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
}

// nodesOf returns the nodes of pods. found is nil if they could not be read.
func nodesOf(pods []*corev1.Pod, found map[string]*corev1.Node) []Node {
	all := []Node{}
	for _, name := range clilws.NodeNames(pods) {
		n := nodeOf(name, found)
		n.Requested, n.Allocatable = corev1.ResourceList{}, corev1.ResourceList{}
		for _, pod := range pods {
			if pod.Spec.NodeName == name {
				n.add(gang.AcceleratorsOf(pod))
			}
		}
		if node := found[name]; node != nil {
			for resource := range n.Requested {
				n.Allocatable[resource] = node.Status.Allocatable[resource]
			}
		}
		all = append(all, n)
	}
	return all
}

// add adds the accelerators that a pod requests.
func (n *Node) add(requests corev1.ResourceList) {
	for resource, quantity := range requests {
		quantity.Add(n.Requested[resource])
		n.Requested[resource] = quantity
	}
}

func nodeOf(name string, found map[string]*corev1.Node) Node {
	node, isRead := found[name], found != nil
	switch {
	case !isRead:
		return Node{Name: name, State: unknown}
	case node == nil:
		return Node{Name: name, State: "Gone"}
	}
	n := Node{Name: name, State: "NotReady", Cordoned: node.Spec.Unschedulable}
	for i, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.Ready = &node.Status.Conditions[i]
		}
	}
	if n.Ready != nil && n.Ready.Status == corev1.ConditionTrue {
		n.State = "Ready"
	}
	for _, taint := range node.Spec.Taints {
		if n.Cordoned && taint.Key == corev1.TaintNodeUnschedulable {
			n.CordonedAt = taint.TimeAdded
		}
	}
	return n
}

// health says how a node is, and since when.
func (n Node) health(p *page.Page) page.Cell {
	cell, since := page.Cell{Text: n.State, Tone: page.Bad}, unknown
	switch {
	case n.State == "Ready":
		cell.Tone = page.Good
	case n.State == unknown:
		cell.Tone = 0
	case n.Ready != nil:
		cell.Text = fmt.Sprintf("%s for %s (%s)", n.State, p.Age(&n.Ready.LastTransitionTime), page.Dash(n.Ready.Reason))
	}
	if n.CordonedAt != nil {
		since = p.Age(n.CordonedAt)
	}
	if n.Cordoned {
		return page.Cell{Text: fmt.Sprintf("%s, cordoned for %s", cell.Text, since), Tone: max(cell.Tone, page.Caution)}
	}
	return cell
}

func writeNodes(p *page.Page, nodes []Node) {
	var rows []page.Row
	for _, n := range nodes {
		var has []string
		for _, name := range slices.Sorted(maps.Keys(n.Requested)) {
			requested, of := n.Requested[name], unknown
			if quantity, isKnown := n.Allocatable[name]; isKnown {
				of = quantity.String()
			}
			has = append(has, fmt.Sprintf("%s of %s %s", &requested, of, name))
		}
		rows = append(rows, page.Row{n.Name, n.health(p), strings.Join(has, ", ")})
	}
	p.Table(page.Row{"NODE", "STATE", "ACCELERATORS"}, rows)
}
