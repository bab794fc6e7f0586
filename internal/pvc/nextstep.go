package pvc

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// Suggestion is one step to take.
type Suggestion struct {
	Do string `json:"do"`
	// Command takes the step, if one command can.
	Command string `json:"command,omitempty"`
	// Frees are the holders that the step ends.
	Frees []string `json:"frees,omitempty"`
}

// actions are the next step for each holder, and for finalizers. Holders that need the same step share it.
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
	for _, f := range each(c.Claim.Finalizers, finalizerOf) {
		if f.Owner == UnknownOwner {
			add(Suggestion{Do: "ask the owner of finalizer " + f.Key}, "Finalizer/"+f.Key)
		}
	}
	due := Settings{Alone: true}.takes(c.Claim) // whatever component removes it
	if due != "" && !held && c.blind() == "" {
		add(c.overdue(due), "Finalizer/"+due)
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

// podStep repairs the node of a pod, or waits for a terminating one. Otherwise the workload above
// the pod lets go, if it holds as well or if several of its pods hold, or the pod is deleted.
func (c Case) podStep(h Explained, pod *corev1.Pod, holders []Explained) Suggestion {
	if s, ok := c.nodeStep(pod); ok {
		return s
	}
	if h.Leaving != nil {
		return c.leavingStep(h, pod)
	}
	above := func(o Explained) bool {
		return o.Holds && slices.ContainsFunc(h.above, func(w *workloads.Want) bool { return w.Workload.UID == o.UID })
	}
	if i := slices.IndexFunc(holders, above); i >= 0 {
		return c.step(holders[i], holders)
	}
	if top := topOf(h); top != nil && slices.ContainsFunc(holders, func(o Explained) bool { return o.UID != h.UID && topOf(o) == top }) {
		return workloadStep(top)
	}
	return Suggestion{Do: "delete " + h.Name, Command: "kubectl delete pod " + pod.Name + " -n " + pod.Namespace}
}

// topOf is the workload above a bound pod that lets it go when it is scaled, or deleted if it has finished.
func topOf(h Explained) *workloads.Want {
	if len(h.above) == 0 || h.Reason != BoundPod {
		return nil
	}
	top, ending := workloads.Top(h.above)
	if ending || isOver(corev1.PodPhase(h.Phase)) && top.Idle != workloads.Finished {
		return nil
	}
	return top
}

// workloadStep ends all pods of a workload.
func workloadStep(w *workloads.Want) Suggestion {
	name := string(w.Workload.Kind) + "/" + w.Workload.Name
	if w.Idle == workloads.Finished {
		return Suggestion{Do: "delete " + name, Command: deletion(w.Workload)}
	}
	return Suggestion{Do: name + ": " + w.Released, Command: scaleTo(w.Workload, 0)}
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
	case IsReady(node), slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }):
		return Suggestion{}, false
	}
	return Suggestion{
		Do:      "node " + node.Name + " is not ready: start it, or taint it if its machine is off",
		Command: "kubectl taint node " + node.Name + " " + corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute",
	}, true
}

// lateBy is how long after its deletionTimestamp a pod counts as stuck.
const lateBy = time.Minute

func (c Case) leavingStep(h Explained, pod *corev1.Pod) Suggestion {
	for _, key := range pod.Finalizers {
		if finalizerOf(key).Owner == UnknownOwner {
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

// IsReady reports whether a node is ready.
func IsReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// overdue is the step for a finalizer that nothing holds.
func (c Case) overdue(key string) Suggestion {
	switch {
	case c.guarded():
		return Suggestion{
			Do:      "wait for the operator to remove annotation " + HoldersAnnotation + "; if no operator runs, release the PVC",
			Command: ReleaseCommand(c.Claim),
		}
	case c.unreadableRecord():
		return Suggestion{Do: "check that no pod uses the PVC, then remove annotation " + UsersAnnotation, Command: c.unannotate(UsersAnnotation)}
	}
	component := "the operator of Lockstep"
	if key == PodsFinalizer {
		component = "kube-controller-manager"
	}
	return Suggestion{Do: "wait some seconds; if " + key + " stays, check that " + component + " runs"}
}

func (c Case) unannotate(key string) string {
	return fmt.Sprintf("kubectl annotate pvc %s -n %s %s-", c.Claim.Name, c.Claim.Namespace, key)
}

// deletion is how to delete a PVC that refuses a DELETE now.
func (c Case) deletion(e Explanation) []Suggestion {
	if !e.Refused || c.wished() || c.NamespaceEnding {
		return nil
	}
	if c.annotated().Names == Unverified {
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

// ReleaseCommand lets a held PVC be deleted.
func ReleaseCommand(pvc *corev1.PersistentVolumeClaim) string {
	return "kubectl lockstep release pvc/" + pvc.Name + " -n " + pvc.Namespace
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

// resourceOf is the kind as kubectl takes it, with its group where kubectl would choose another one.
func resourceOf(workload identity.Ref) string {
	kind := strings.ToLower(string(workload.Kind))
	group, _, found := strings.Cut(workload.APIVersion, "/")
	if !found || slices.Contains([]string{"apps", "batch", lwsv1.GroupVersion.Group, workloads.JobSet.Group}, group) {
		return kind
	}
	return kind + "." + group
}

// Finalizer is a finalizer, its owner, and when the owner removes it.
type Finalizer struct {
	Key   string `json:"key"`
	Owner string `json:"owner"`
	Drops string `json:"drops"`
}

// UnknownOwner is the owner of a finalizer that owners does not name.
const UnknownOwner = "unknown"

// owners of finalizers on PVCs and pods.
var owners = map[string]Finalizer{
	PodsFinalizer:                      {Owner: "persistentvolumeclaim-protection-controller", Drops: "no bound pod uses the PVC"},
	BarrierFinalizer:                   {Owner: "lockstep", Drops: PodsFinalizer + " is gone, and a later read finds no bound pod"},
	snapshotFinalizer:                  {Owner: "snapshot-controller", Drops: "the snapshot is taken"},
	cloneFinalizer:                     {Owner: "external-provisioner", Drops: "the clone is made"},
	"foregroundDeletion":               {Owner: "garbage collector", Drops: "all dependents are gone"},
	"orphan":                           {Owner: "garbage collector", Drops: "its dependents are orphaned"},
	"batch.kubernetes.io/job-tracking": {Owner: "job controller", Drops: "the Job has counted the pod"},
}

func finalizerOf(key string) Finalizer {
	f, ok := owners[key]
	if !ok {
		f.Owner, f.Drops = UnknownOwner, "its owner decides"
	}
	f.Key = key
	return f
}
