package pvc

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Blocker is what keeps a holder from leaving.
type Blocker struct {
	Of     string `json:"of"`
	What   string `json:"what"`
	Remedy string `json:"remedy"`
	// Command is the remedy as a command, where one command is it.
	Command string `json:"command,omitempty"`
}

// lateBy is how long after its last moment a pod counts as one that cannot leave.
const lateBy = time.Minute

func isController(owner metav1.OwnerReference) bool {
	return owner.Controller != nil && *owner.Controller
}

// blockers of those that hold: a pod that is told to leave and cannot, and one
// that could not if it were.
func (c Case) blockers(holders []Explained) []Blocker {
	var found []Blocker
	for _, h := range holders {
		pod := c.Pods[h.UID]
		if !h.Holds || pod == nil || pod.Spec.NodeName == "" {
			continue
		}
		lost, stuck := c.lostNode(h, pod), podFinalizers(h.Name, pod)
		found = append(append(found, lost...), stuck...)
		if pod.DeletionTimestamp != nil && len(lost)+len(stuck) == 0 {
			found = append(found, c.overtime(h, pod)...)
		}
	}
	return append(found, c.stillAttached()...)
}

func (c Case) lostNode(h Explained, pod *corev1.Pod) []Blocker {
	node, looked := c.Nodes[pod.Spec.NodeName]
	switch {
	case !looked:
		return nil
	case node == nil:
		return []Blocker{{
			Of: h.Name, What: "node " + pod.Spec.NodeName + " is gone", Remedy: "wait for the pod garbage collector, or force its deletion",
			Command: forced(pod),
		}}
	case isReady(node) || isOutOfService(node):
		return nil
	}
	return []Blocker{{
		Of: h.Name, What: "node " + node.Name + " is not ready: nobody there can end the pod",
		Remedy:  "if the machine " + node.Name + " is off for certain, say so by a taint; if not, bring it back",
		Command: "kubectl taint node " + node.Name + " " + corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute",
	}}
}

func forced(pod *corev1.Pod) string {
	return fmt.Sprintf("kubectl delete pod %s -n %s --force --grace-period=0", pod.Name, pod.Namespace)
}

// overtime is of a pod whose time to end is over, on a node that works or is given up.
func (c Case) overtime(h Explained, pod *corev1.Pod) []Blocker {
	node := c.Nodes[pod.Spec.NodeName]
	if node == nil || c.Now.Before(pod.DeletionTimestamp.Add(lateBy)) {
		return nil
	}
	ended := "it should have ended at " + pod.DeletionTimestamp.UTC().Format(time.RFC3339)
	if !isReady(node) {
		return []Blocker{{
			Of: h.Name, What: ended + ", and its node " + node.Name + " is marked out of service",
			Remedy: "the pod garbage collector removes it: see whether kube-controller-manager runs", Command: forced(pod),
		}}
	}
	return []Blocker{{
		Of: h.Name, What: ended + ", and its node " + node.Name + " works",
		Remedy:  "see its events, and the kubelet's log on that node: it may be unable to unmount",
		Command: fmt.Sprintf("kubectl describe pod %s -n %s", pod.Name, pod.Namespace),
	}}
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// endsWithItsNode tells whether a pod goes, told to leave or not, once its node is
// given up: the taint evicts what does not tolerate it, and what is bound to no node
// is garbage.
func (c Case) endsWithItsNode(h Explained) bool {
	pod := c.Pods[h.UID]
	if pod == nil || pod.Spec.NodeName == "" || len(c.lostNode(h, pod)) == 0 {
		return false
	}
	return c.Nodes[pod.Spec.NodeName] == nil || !slices.ContainsFunc(pod.Spec.Tolerations, staysOutOfService)
}

func staysOutOfService(t corev1.Toleration) bool {
	every := t.Key == "" && t.Operator == corev1.TolerationOpExists
	return (every || t.Key == corev1.TaintNodeOutOfService) && (t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute)
}

// stillAttached is told of a claim on its way out: its volume cannot be deleted
// before.
func (c Case) stillAttached() []Blocker {
	if !c.terminating() || len(c.Attached) == 0 {
		return nil
	}
	return []Blocker{{
		Of: "PersistentVolume/" + c.Claim.Spec.VolumeName, What: "still attached to " + named(slices.Clone(c.Attached)),
		Remedy: "it is detached when no pod there uses it; until then the volume outlives the claim",
	}}
}
