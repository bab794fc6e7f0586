package pvc

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// Why a holder holds.
const (
	BoundPod     = "BoundPod"     // keeps the finalizers as well
	UnboundPod   = "UnboundPod"   // reported; it refuses no DELETE
	DesiredState = "DesiredState" // its spec names the PVC
	Asked        = "Asked"        // a user annotated the PVC
	BeingCopied  = "BeingCopied"  // a snapshot or a clone of it is being taken
	Stated       = "Stated"       // the operator named it on the PVC, and it was not found
)

// Holder is what uses a PVC.
type Holder struct {
	Object identity.Ref `json:"-"`
	// Name is the kind and the name: "Pod/llama-0".
	Name   string    `json:"name"`
	UID    types.UID `json:"uid,omitempty"`
	Reason string    `json:"reason"`
	// Proof is the field that names the PVC.
	Proof string `json:"proof,omitempty"`
	Node  string `json:"node,omitempty"`
	Phase string `json:"phase,omitempty"`
	// Released is what ends its use.
	Released string `json:"released,omitempty"`
	// match is how the workload wants the PVC, or zero.
	match workloads.Match
	// discards reports that the workload wants the PVC deleted.
	discards bool
	// since is when it was created, or zero.
	since time.Time
	// above are the workloads above it in its chain of controllers.
	above []*workloads.Want
}

// awaitsEnd is the phase of a workload that was created after the PVC, whose owners are gone.
const awaitsEnd = "it waits until this PVC is gone, and creates a new one"

// Finished reports whether a workload has finished and will not use the PVC again.
func (h Holder) Finished() bool { return h.Phase == workloads.Finished && h.Reason == DesiredState }

// AwaitsEnd reports whether a workload waits until the PVC is gone.
func (h Holder) AwaitsEnd() bool { return h.Phase == awaitsEnd && h.Reason == DesiredState }

// World is everything in a namespace that may hold a PVC.
type World struct {
	Pods   *Index
	Desire *workloads.Desire
	// Links are the controllers of the pods of a PVC, and of those between workloads.
	Links map[types.UID]types.UID
	// Idle is what becomes of a PVC that only idle workloads would use: scaled to zero, suspended, or with fewer replicas
	// than the ordinal. Without a choice, a DELETE is warned of.
	Idle v1alpha1.IdlePolicy
	// OwnersGone reports whether the PVC has owners, and all of them are gone or wait for
	// the PVC to go. An ownerReference is the user's word: such a PVC is garbage.
	OwnersGone bool
}

// OwnersGone reports whether a PVC has owners, and all of them are gone or wait for it to
// go. gone reports this of one owner.
func OwnersGone(pvc *corev1.PersistentVolumeClaim, gone func(owner identity.Ref) bool) bool {
	stays := func(owner metav1.OwnerReference) bool { return !gone(identity.OwnerRef(pvc.Namespace, owner)) }
	return len(pvc.OwnerReferences) > 0 && !slices.ContainsFunc(pvc.OwnerReferences, stays)
}

// GoneLive reports whether an owner is gone or waits for the PVC to go, in a world that is
// that of the whole namespace. served reports whether objects of its kind are in it.
func (w World) GoneLive(owner identity.Ref, served bool) bool {
	if want := w.Desire.WithUID(owner.UID); want != nil {
		return want.Foreground
	}
	_, pod := w.Links[owner.UID]
	return served && !pod
}

// Holders are those that hold a PVC now, and those that are idle and would.
func (w World) Holders(pvc *corev1.PersistentVolumeClaim) (holders, idle []Holder) {
	holders = append(w.podHolders(pvc), annotationHolders(pvc)...)
	if w.Desire.Namespace != pvc.Namespace {
		return sorted(holders), nil
	}
	for _, match := range w.Desire.Of(pvc.Name) {
		chain := append([]*workloads.Want{match.Want}, w.Desire.Above(match.Want.Controller.UID, w.Links)...)
		top, ending := workloads.Top(chain)
		if ending {
			continue // a workload that is being deleted wants nothing
		}
		h := w.workloadHolder(match, top)
		switch {
		case w.OwnersGone && match.Want.Since.After(pvc.CreationTimestamp.Time):
			h.Phase, h.discards = awaitsEnd, true // it was created after the PVC of its name, which is garbage
			idle = append(idle, h)
		case h.Finished() || match.Idle != "" && w.Idle != v1alpha1.IdleHold:
			idle = append(idle, h)
		default:
			holders = append(holders, h)
		}
	}
	return sorted(holders), sorted(idle)
}

// Refusing are the holders for which a DELETE is refused. An unscheduled pod is none: any user
// can create one that is never scheduled.
func Refusing(holders []Holder) []Holder {
	return slices.DeleteFunc(slices.Clone(holders), func(h Holder) bool { return h.Reason == UnboundPod })
}

// told are the refusing holders that are named on a PVC: those without a holder above them. Pods
// of a workload and Jobs of a CronJob come and go. In a ring, which users can forge, all are named.
func told(holders []Holder) []Holder {
	refusing, hold := Refusing(holders), map[types.UID]bool{}
	for _, h := range refusing {
		hold[h.UID] = hold[h.UID] || h.Reason == DesiredState
	}
	highest := slices.DeleteFunc(slices.Clone(refusing), func(h Holder) bool {
		return slices.ContainsFunc(h.above, func(above *workloads.Want) bool { return hold[above.Workload.UID] })
	})
	if len(highest) == 0 {
		return refusing
	}
	return highest
}

func (w World) podHolders(pvc *corev1.PersistentVolumeClaim) []Holder {
	var holders []Holder
	for _, use := range w.Pods.Uses(pvc) {
		if use.Node == "" && isOver(use.Phase) {
			continue
		}
		h := Holder{
			Object: use.Pod, Name: "Pod/" + use.Pod.Name, UID: use.Pod.UID, Reason: UnboundPod, Proof: use.Path,
			Node: use.Node, Phase: string(use.Phase), Released: "delete the pod",
			above: w.Desire.Above(w.Links[use.Pod.UID], w.Links),
		}
		if use.holds(pvc) {
			h.Reason = BoundPod
		}
		holders = append(holders, h)
	}
	return holders
}

func isOver(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// workloadHolder names the workload at the top of the chain, which a user scales or deletes.
func (w World) workloadHolder(m workloads.Match, top *workloads.Want) Holder {
	proof := m.Path
	if top != m.Want {
		proof = m.Path + " of " + m.Want.Workload.String()
	}
	return Holder{
		Object: top.Workload, Name: string(top.Workload.Kind) + "/" + top.Workload.Name, UID: top.Workload.UID,
		Reason: DesiredState, Proof: proof, Phase: m.Idle, Released: top.Released, match: m, discards: m.Discarded(),
		since: top.Since, above: w.Desire.Above(top.Controller.UID, w.Links),
	}
}

// annotationHolders are those that the PVC itself names.
func annotationHolders(pvc *corev1.PersistentVolumeClaim) []Holder {
	var holders []Holder
	if text, ok := pvc.Annotations[HoldAnnotation]; ok {
		holders = append(holders, Holder{
			Name: "Hold/" + pvc.Name, Reason: Asked, Proof: "metadata.annotations[" + HoldAnnotation + "]: " + said(text),
			Released: "remove the annotation",
		})
	}
	for _, f := range pvc.Finalizers {
		if f == snapshotFinalizer || f == cloneFinalizer {
			holders = append(holders, Holder{Name: "Finalizer/" + f, Reason: BeingCopied, Proof: "metadata.finalizers", Released: "wait for the copy"})
		}
	}
	return holders
}

// sorted orders holders and keeps each object once.
func sorted(holders []Holder) []Holder {
	slices.SortStableFunc(holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Proof, b.Proof))
	})
	return slices.CompactFunc(holders, func(a, b Holder) bool { return a.Name == b.Name && a.UID == b.UID })
}

// Disown is the patch that removes the owners of a PVC: no garbage collector deletes it then.
const Disown = `{"metadata":{"ownerReferences":null}}`

// HeldAndOwned names the holders of a living PVC with owners, by its annotation, or is empty. Without its owners, the
// garbage collector deletes it as soon as nothing refuses that. A cooling PVC has no holders.
func HeldAndOwned(pvc *corev1.PersistentVolumeClaim) string {
	holders := ParseHolders(pvc.Annotations[HoldersAnnotation])
	if pvc.DeletionTimestamp != nil || len(pvc.OwnerReferences) == 0 || holders.Names == Unverified || !holders.Until.IsZero() {
		return ""
	}
	return said(holders.Names)
}

// OwnersOf names the owners of a PVC, each with its UID.
func OwnersOf(pvc *corev1.PersistentVolumeClaim) string {
	return strings.Join(each(pvc.OwnerReferences, func(owner metav1.OwnerReference) string {
		return said(owner.Kind + "/" + owner.Name + " (UID " + string(owner.UID) + ")")
	}), ", ")
}
