package pvc

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
)

const (
	// CompletedGrace is for how long a pod has to be known to have completed before
	// it lets go of a claim that chose so: the volume is unmounted after that.
	CompletedGrace = 30 * time.Second
	// LookForTraces is how soon a volume is looked for again that is still on a node.
	LookForTraces = 15 * time.Second
)

// Question asks where the volume of a claim is.
type Question struct {
	Claim *corev1.PersistentVolumeClaim
	// Nodes are those asked for; none means all there are.
	Nodes []string
}

// Traces are what is left of a volume on nodes, read after the pods were.
type Traces struct {
	// Attached are the nodes that it is attached to, asked for or not.
	Attached []string
	// InUse are the nodes asked for whose kubelet has it in use, or may have.
	InUse []string
	// Silent are nodes asked for by name that tell nothing: gone, or not ready.
	Silent []string
}

// Tracing answers what pods do not tell. The zero value answers nothing: then pods
// that have completed hold like others, and a claim that asks for more stays.
type Tracing struct {
	// Completed is for how long a pod has been known to have completed.
	Completed func(types.UID) time.Duration
	Read      func(Question) (Traces, error)
}

// left says where a volume still is, or may be, or "".
func (t Traces) left(volume string) string {
	var left []string
	for _, where := range []struct {
		says  string
		nodes []string
	}{
		{"volume " + volume + " is still attached to node ", t.Attached},
		{"volume " + volume + " may still be in use on node ", t.InUse},
		{"nothing is known of what is mounted on node ", t.Silent},
	} {
		if len(where.nodes) > 0 {
			left = append(left, where.says+named(slices.Clone(where.nodes)))
		}
	}
	return strings.Join(left, ", ")
}

// MayUse tells whether a node's kubelet has a volume in use, for all that its status
// says. A kubelet names it there before it is mounted, and until it is unmounted,
// unless it is of a kind that is never attached: of such nothing can be told.
func MayUse(node *corev1.Node, volume *corev1.PersistentVolume) bool {
	source := volume.Spec.PersistentVolumeSource
	switch {
	case source.NFS != nil, source.HostPath != nil, source.Local != nil:
		return false
	case source.CSI != nil:
		name := corev1.UniqueVolumeName("kubernetes.io/csi/" + source.CSI.Driver + "^" + source.CSI.VolumeHandle)
		return slices.Contains(node.Status.VolumesInUse, name)
	}
	return len(node.Status.VolumesInUse) > 0 // under what name is not known here
}

// Reports tells whether what a node's status says is of now.
func Reports(node *corev1.Node) bool { return node != nil && isReady(node) }

// trace judges by what is left of the volume, where the claim chose to, and pods do
// not decide.
func (v LiveView) trace(claim *corev1.PersistentVolumeClaim, k Kept) Kept {
	choice := ChoiceOf(claim, v.batch.labels)
	if choice.CompletedFree && v.onlyCompleted(k) {
		k = v.traceCompleted(claim, k)
	}
	if choice.AttachedHolds && k.free() && v.batch.takes(claim) == BarrierFinalizer {
		k = v.traceVolume(claim, k)
	}
	return k
}

// onlyCompleted tells whether nobody holds a claim but pods that have completed.
func (v LiveView) onlyCompleted(k Kept) bool {
	completed := func(pod Recorded) bool {
		return slices.ContainsFunc(k.Users, func(u Use) bool { return u.Pod.UID == pod.UID })
	}
	return k.Err == nil && allCompleted(k.Users) && len(k.Recorded.Without(completed)) == 0
}

func (v LiveView) traceCompleted(claim *corev1.PersistentVolumeClaim, k Kept) Kept {
	if v.tracing.Completed == nil || v.tracing.Read == nil {
		return k
	}
	wait := time.Duration(0)
	var nodes, pods []string
	for _, use := range k.Users {
		wait = max(wait, CompletedGrace-v.tracing.Completed(use.Pod.UID))
		nodes, pods = append(nodes, use.Node), append(pods, onNode(use.Pod, use.Node))
	}
	stays := staysUntil(pods)
	if wait > 0 {
		k.Awaits, k.Again = action.Reason{Code: "CompletedPods", Sentence: fmt.Sprintf("%s, %s after it completed, once the volume has left its node", stays, CompletedGrace)}, wait
		return k
	}
	slices.Sort(nodes)
	left, err := v.leftOf(claim, slices.Compact(nodes))
	switch {
	case err != nil:
		k.Err = err
	case left != "":
		k.Awaits, k.Again = action.Reason{Code: "CompletedPods", Sentence: stays + ": completed, but " + left}, LookForTraces
	default:
		k.Users, k.Recorded = nil, nil
	}
	return k
}

// traceVolume keeps a claim whose volume is still on a node.
func (v LiveView) traceVolume(claim *corev1.PersistentVolumeClaim, k Kept) Kept {
	left, err := v.leftOf(claim, nil)
	switch {
	case err != nil:
		k.Err = err
	case left != "":
		k.Awaits, k.Again = action.Reason{Code: "VolumeAttached", Sentence: "is being deleted, and stays: no pod uses the claim any more, and " + left}, LookForTraces
	}
	return k
}

// leftOf says what is left of the volume of a claim on nodes. One that was never
// bound has none.
func (v LiveView) leftOf(claim *corev1.PersistentVolumeClaim, nodes []string) (string, error) {
	if claim.Spec.VolumeName == "" {
		return "", nil
	}
	if v.tracing.Read == nil {
		return "", errNotTraced
	}
	traces, err := v.tracing.Read(Question{Claim: claim, Nodes: nodes})
	if err != nil {
		return "", fmt.Errorf("where volume %q is: %w", claim.Spec.VolumeName, err)
	}
	return traces.left(claim.Spec.VolumeName), nil
}
