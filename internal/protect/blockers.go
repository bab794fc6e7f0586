package protect

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Blocker is what keeps a holder from leaving.
type Blocker struct {
	Of     string `json:"of"`
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

func isController(owner metav1.OwnerReference) bool {
	return owner.Controller != nil && *owner.Controller
}

// blockers of those that hold: a pod that is told to leave and cannot.
func (c Case) blockers(holders []Explained) []Blocker {
	var found []Blocker
	for _, h := range holders {
		pod := c.Pods[h.UID]
		if !h.Holds || pod == nil || pod.DeletionTimestamp == nil {
			continue
		}
		found = append(found, c.lostNode(h, pod)...)
		for _, f := range pod.Finalizers {
			found = append(found, Blocker{Of: h.Name, What: "finalizer " + f, Remedy: "ask its owner"})
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
		return []Blocker{{h.Name, "node " + pod.Spec.NodeName + " is gone", "wait for the pod garbage collector, or force its deletion"}}
	case isReady(node) || isOutOfService(node):
		return nil
	}
	return []Blocker{{
		h.Name, "node " + node.Name + " is not ready: nobody there can end the pod",
		"if the machine is off for certain: kubectl taint node " + node.Name + " " + corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute",
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

// stillAttached is told of a claim on its way out: its volume cannot be deleted
// before.
func (c Case) stillAttached() []Blocker {
	if !c.terminating() || len(c.Attached) == 0 {
		return nil
	}
	nodes := named(slices.Clone(c.Attached))
	return []Blocker{{"PersistentVolume/" + c.Claim.Spec.VolumeName, "still attached to " + nodes, "wait for it to be detached"}}
}

// then is what happens to the data once the claim goes.
func (c Case) then(holders, idle []Holder) []string {
	told := c.volume()
	for _, h := range slices.Concat(holders, idle) {
		if h.makes && h.Phase == "" {
			told = append(told, h.Name+" will create an empty claim of the same name")
		}
	}
	if c.IfDeleted && c.refuses() {
		told = append([]string{"a DELETE is refused now: " + c.Claim.Annotations[HoldersAnnotation]}, told...)
	}
	return told
}

func (c Case) volume() []string {
	name := c.Claim.Spec.VolumeName
	switch {
	case name == "":
		return []string{"no volume is bound: there is no data"}
	case c.Volume == nil:
		return []string{fmt.Sprintf("volume %s was not read: what happens to the data is unknown", name)}
	case c.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain:
		return []string{fmt.Sprintf("volume %s is kept, Released: the data stays", name)}
	}
	return []string{fmt.Sprintf("volume %s is deleted, and the data with it", name)}
}
