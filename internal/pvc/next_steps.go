package pvc

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// lateBy is how long after its deletionTimestamp an object counts as stuck.
const lateBy = time.Minute

// actions are the next step for each holder, and for finalizers. Holders that need the
// same step share it.
func (c Case) actions(holders []Explained) (all []Suggestion) {
	add := func(s Suggestion, frees string) {
		i := slices.IndexFunc(all, func(known Suggestion) bool { return known.Do == s.Do && known.Command == s.Command })
		if i < 0 {
			i, all = len(all), append(all, s)
		}
		all[i].Frees = append(all[i].Frees, frees)
	}
	held := false
	for _, h := range holders {
		if h.Holds {
			held = true
			add(c.step(h, holders), h.Name)
		}
	}
	for _, f := range c.finalizers() {
		if f.Owner == unknownOwner {
			add(Suggestion{Do: "ask the owner of finalizer " + f.Key}, "Finalizer/"+f.Key)
		}
	}
	if f, ok := c.due(); ok && !held && !c.blind() {
		add(c.overdue(f), "Finalizer/"+f.Key)
	}
	return all
}

// step is the next step that ends one holder.
func (c Case) step(h Explained, holders []Explained) Suggestion {
	if pod := c.Pods[h.UID]; pod != nil {
		return c.podStep(h, pod, holders)
	}
	s := Suggestion{Do: h.Name + ": " + h.Released}
	switch {
	case h.Reason == DesiredState && h.Phase != "":
		s.Command = deletion(h.Object)
	case h.Reason == DesiredState:
		s.Command = scaleTo(h.Object, h.match.Below)
	case h.Reason == Asked:
		s.Command = c.unannotate(HoldAnnotation)
	}
	return s
}

func (c Case) podStep(h Explained, pod *corev1.Pod, holders []Explained) Suggestion {
	if s, ok := c.nodeStep(pod); ok {
		return s
	}
	if h.Leaving != nil {
		return c.leavingStep(h, pod)
	}
	top, known := c.workloadOf(pod)
	if !known || isOver(pod.Status.Phase) && top.Idle != workloads.Finished {
		return c.deletePod(pod)
	}
	if i := slices.IndexFunc(holders, func(o Explained) bool { return o.UID == top.Workload.UID && o.Holds }); i >= 0 {
		return c.step(holders[i], holders)
	}
	pods := 0
	for _, o := range holders {
		if of, ok := c.workloadOf(c.Pods[o.UID]); ok && o.Holds && of == top {
			pods++
		}
	}
	switch name := string(top.Workload.Kind) + "/" + top.Workload.Name; {
	case pods == 1:
		return c.deletePod(pod)
	case top.Idle == workloads.Finished:
		return Suggestion{Do: "delete " + name, Command: deletion(top.Workload)}
	default:
		return Suggestion{Do: name + ": " + top.Released, Command: scaleTo(top.Workload, 0)}
	}
}

// nodeStep gives up the node of a pod that cannot end there.
func (c Case) nodeStep(pod *corev1.Pod) (Suggestion, bool) {
	node, read := c.Nodes[pod.Spec.NodeName]
	switch {
	case !read, pod.Spec.NodeName == "":
		return Suggestion{}, false
	case node == nil:
		return Suggestion{
			Do:      "node " + pod.Spec.NodeName + " is gone: wait for the pod garbage collector, or force the deletion",
			Command: fmt.Sprintf("kubectl delete pod %s -n %s --force --grace-period=0", pod.Name, pod.Namespace),
		}, true
	case isReady(node), isOutOfService(node):
		return Suggestion{}, false
	}
	return Suggestion{
		Do:      "node " + node.Name + " is not ready: start it, or taint it if its machine is off",
		Command: "kubectl taint node " + node.Name + " " + corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute",
	}, true
}

func (c Case) leavingStep(h Explained, pod *corev1.Pod) Suggestion {
	for _, key := range pod.Finalizers {
		if finalizerOf(key).Owner == unknownOwner {
			return Suggestion{Do: h.Name + ": ask the owner of finalizer " + key}
		}
	}
	if c.Now.Before(h.Leaving.Add(lateBy)) {
		return Suggestion{Do: "wait for " + h.Name + " to end"}
	}
	return Suggestion{
		Do:      h.Name + " should have ended: read its events and the log of the kubelet on node " + h.Node,
		Command: fmt.Sprintf("kubectl describe pod %s -n %s", pod.Name, pod.Namespace),
	}
}

func (c Case) deletePod(pod *corev1.Pod) Suggestion {
	s := Suggestion{Do: "delete Pod/" + pod.Name, Command: "kubectl delete pod " + pod.Name + " -n " + pod.Namespace}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		if _, known := c.workloadOf(pod); !known {
			s.Do += " (" + said(owner.Kind+"/"+owner.Name) + " may create another)"
		}
	}
	return s
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// workloadOf is the workload that would create a deleted pod again.
func (c Case) workloadOf(pod *corev1.Pod) (top *workloads.Want, ok bool) {
	if pod == nil {
		return nil, false
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return nil, false
	}
	chain := c.World.Desire.Above(owner.UID, c.World.Links)
	if len(chain) == 0 {
		return nil, false
	}
	top, ending := workloads.Top(chain)
	return top, !ending
}

// due is the finalizer of a terminating PVC that is removed next: the barrier waits for
// the one for pods.
func (c Case) due() (Finalizer, bool) {
	for _, key := range []string{PodsFinalizer, BarrierFinalizer} {
		if c.terminating() && slices.Contains(c.Claim.Finalizers, key) {
			return finalizerOf(key), true
		}
	}
	return Finalizer{}, false
}

// late reports whether a terminating PVC without holders should be gone.
func (c Case) late() bool { return c.Now.After(c.Claim.DeletionTimestamp.Add(lateBy)) }

// overdue is the step for a finalizer that nothing holds.
func (c Case) overdue(f Finalizer) Suggestion {
	component := "the operator of Lockstep"
	if f.Key == PodsFinalizer {
		component = "kube-controller-manager"
	}
	switch {
	case c.annotationsKeepFinalizers():
		return Suggestion{
			Do:      "wait for the operator to remove annotation " + HoldersAnnotation + "; if no operator runs, release the PVC",
			Command: ReleaseCommand(c.Claim),
		}
	case c.unreadableRecord() != nil:
		return Suggestion{Do: "check that no pod uses the PVC, then remove annotation " + UsersAnnotation, Command: c.unannotate(UsersAnnotation)}
	case c.late():
		return Suggestion{Do: "check that " + component + " runs: it removes " + f.Key}
	}
	return Suggestion{Do: "wait some seconds; if " + f.Key + " stays, check that " + component + " runs"}
}

func (c Case) unannotate(key string) string {
	return fmt.Sprintf("kubectl annotate pvc %s -n %s %s-", c.Claim.Name, c.Claim.Namespace, key)
}

// deletion is how to delete a PVC that refuses a DELETE now.
func (c Case) deletion(e Explanation) []Suggestion {
	asked := c.Claim.UID != "" && c.Claim.Annotations[IntentAnnotation] == string(c.Claim.UID)
	if !e.Refused || asked || c.NamespaceEnding {
		return nil
	}
	if c.Claim.Annotations[HoldersAnnotation] == Unverified {
		return []Suggestion{{Do: "check that an operator runs: it replaces the value " + Unverified + " within seconds"}}
	}
	until := fmt.Sprintf("the last holder is gone for %.0f minutes", Grace.Minutes())
	if e.Until != nil {
		until = e.Until.UTC().Format(time.RFC3339)
	}
	on := c.Claim.Name + " -n " + c.Claim.Namespace
	return []Suggestion{
		{Do: "delete it once its hold has ended: when " + until, Command: "kubectl delete pvc " + on},
		{Do: "or let the operator delete it then", Command: fmt.Sprintf("kubectl annotate pvc %s %s=%s", on, IntentAnnotation, c.Claim.UID)},
	}
}

func deletion(workload identity.Ref) string {
	return fmt.Sprintf("kubectl delete %s %s -n %s", resourceOf(workload), workload.Name, workload.Namespace)
}

// scaleTo is a command for kinds whose fields are known. A kind of another group may have
// the same name and scale by other fields.
func scaleTo(workload identity.Ref, replicas int) string {
	kind := resourceOf(workload)
	switch kind {
	case "statefulset", "leaderworkerset", "deployment", "replicaset":
		return fmt.Sprintf("kubectl scale %s/%s -n %s --replicas=%d", kind, workload.Name, workload.Namespace, replicas)
	case "job", "cronjob", "jobset":
		return fmt.Sprintf(`kubectl patch %s %s -n %s --type=merge -p '{"spec":{"suspend":true}}'`, kind, workload.Name, workload.Namespace)
	case "daemonset":
		return deletion(workload)
	}
	return ""
}

// resourceOf is the kind as kubectl takes it, with its group where kubectl would choose
// another one.
func resourceOf(workload identity.Ref) string {
	kind := strings.ToLower(string(workload.Kind))
	group, _, found := strings.Cut(workload.APIVersion, "/")
	if !found {
		group = ""
	}
	switch group {
	case "", "apps", "batch", lwsv1.GroupVersion.Group, workloads.JobSet.Group:
		return kind
	}
	return kind + "." + group
}
