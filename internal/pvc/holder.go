package pvc

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
)

// Why a holder holds.
const (
	BoundPod     = "BoundPod"     // keeps the finalizers as well
	UnboundPod   = "UnboundPod"   // would be stranded; told of, and refuses nothing
	DesiredState = "DesiredState" // its spec names the claim
	Asked        = "Asked"        // somebody said so on the claim
	BeingCopied  = "BeingCopied"  // a snapshot or a clone of it is being taken
	Stated       = "Stated"       // the operator named it on the claim, and it was not found
)

// Holder is what makes a claim in use.
type Holder struct {
	Object identity.Ref `json:"-"`
	// Name is the kind and the name: "Pod/llama-0".
	Name   string    `json:"name"`
	UID    types.UID `json:"uid,omitempty"`
	Reason string    `json:"reason"`
	// Proof is the field that names the claim.
	Proof string `json:"proof,omitempty"`
	Node  string `json:"node,omitempty"`
	Phase string `json:"phase,omitempty"`
	// Released is what makes it let go.
	Released string `json:"released,omitempty"`
	// makes: it makes the claim itself, and would again.
	makes bool
	// discards: it says that the claim is to be deleted while it is beyond its replicas.
	discards bool
	// below is the number of replicas at which it does not want the PVC.
	below int
	// over: the claim is named by something that it controls, and not by itself.
	over bool
	// since is how old it is.
	since time.Time
	// under are the workloads that speak for it where they hold as well: the one at the top
	// of a pod's chain of controllers, and the CronJob that began that.
	under []types.UID
}

// Finished tells of an idle workload that is over, and will not want the claim again.
func (h Holder) Finished() bool { return h.Phase == finished && h.Reason == DesiredState }

// AwaitsEnd reports whether a workload waits until the PVC is gone.
func (h Holder) AwaitsEnd() bool { return h.Phase == awaitsEnd && h.Reason == DesiredState }

// IdlePolicy is what becomes of a claim that only an idle workload would use:
// scaled to zero, suspended, or with fewer replicas than the ordinal.
type IdlePolicy int8

const (
	// IdleWarns lets the claim go, and warns who deletes it.
	IdleWarns IdlePolicy = iota
	// IdleHolds counts an idle workload as one that is not.
	IdleHolds
	// IdleFrees lets the claim go without a word.
	IdleFrees
)

// OwnersGone reports whether a PVC has owners, and all of them are gone or wait for it to
// go. gone reports this of one owner.
func OwnersGone(claim *corev1.PersistentVolumeClaim, gone func(owner identity.Ref) bool) bool {
	for _, owner := range claim.OwnerReferences {
		if !gone(identity.OwnerRef(claim.Namespace, owner)) {
			return false
		}
	}
	return len(claim.OwnerReferences) > 0
}

// GoneLive reports whether an owner is gone or waits for the PVC to go, in a world that is
// that of the whole namespace. served reports whether objects of its kind are in it.
func (w World) GoneLive(owner identity.Ref, served bool) bool {
	if i, ok := w.Desire.byUID[owner.UID]; ok {
		return w.Desire.wants[i].Foreground
	}
	_, pod := w.Links[owner.UID]
	return served && !pod
}

// World is everything in a namespace that may hold a claim.
type World struct {
	Pods   *Index
	Desire *Desire
	// Links are the pods of a claim, and those between workloads.
	Links map[types.UID]Link
	Idle  IdlePolicy
	// OwnersGone reports whether the PVC has owners, and all of them are gone or wait for
	// the PVC to go. An ownerReference is the user's word: such a PVC is garbage.
	OwnersGone bool
}

// Holders are those that hold a claim now, and those that are idle and would.
func (w World) Holders(claim *corev1.PersistentVolumeClaim) (holders, idle []Holder) {
	holders = append(holders, w.podHolders(claim)...)
	for _, c := range w.Desire.of(claim.Name) {
		top, ending := w.Desire.top(c.want, w.Links)
		if ending || w.Desire.namespace != claim.Namespace {
			continue // what is being deleted wants nothing
		}
		h := workloadHolder(c, top)
		h.under = w.Desire.schedule(top)
		if c.want.past() {
			continue
		}
		if w.OwnersGone && c.want.Since.After(claim.CreationTimestamp.Time) {
			h.Phase, h.discards = awaitsEnd, true // it was created after the PVC of its name, which is garbage
			idle = append(idle, h)
			continue
		}
		if c.out == finished || c.out != "" && w.Idle != IdleHolds {
			idle = append(idle, h)
			continue
		}
		holders = append(holders, h)
	}
	holders = append(holders, saidSo(claim)...)
	return sorted(holders), sorted(idle)
}

// Refusing are the holders for whom a DELETE is refused. A pod that was never bound
// is none: anybody could make one that never will be.
func Refusing(holders []Holder) []Holder {
	return slices.DeleteFunc(slices.Clone(holders), func(h Holder) bool { return h.Reason == UnboundPod })
}

// told are the refusing holders that are named on a claim. A pod whose workload
// holds the claim as well goes without saying, and so does the Job of a CronJob: it may
// come and go.
func told(holders []Holder) []Holder {
	workloads := map[types.UID]bool{}
	for _, h := range holders {
		workloads[h.UID] = workloads[h.UID] || h.Reason == DesiredState
	}
	return slices.DeleteFunc(Refusing(holders), func(h Holder) bool {
		return slices.ContainsFunc(h.under, func(above types.UID) bool { return workloads[above] })
	})
}

func (w World) podHolders(claim *corev1.PersistentVolumeClaim) []Holder {
	var holders []Holder
	for _, use := range w.Pods.Uses(claim) {
		if use.Node == "" && isOver(use.Phase) {
			continue
		}
		h := Holder{
			Object: use.Pod, Name: "Pod/" + use.Pod.Name, UID: use.Pod.UID, Reason: UnboundPod, Proof: use.Path,
			Node: use.Node, Phase: string(use.Phase), Released: "delete the pod",
			under: w.Desire.above(use.Pod.UID, w.Links),
		}
		if use.holds(claim) {
			h.Reason = BoundPod
		}
		holders = append(holders, h)
	}
	return holders
}

func isOver(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// farther puts the nearer proof first.
func farther(a, b Holder) int {
	switch {
	case a.over == b.over:
		return 0
	case a.over:
		return 1
	}
	return -1
}

// workloadHolder is told by the workload at the top, which a person knows.
func workloadHolder(c claimed, top *Want) Holder {
	proof := c.path
	if top != c.want {
		proof = c.want.Workload.String() + " " + c.path
	}
	return Holder{
		Object: top.Workload, Name: string(top.Workload.Kind) + "/" + top.Workload.Name, UID: top.Workload.UID,
		Reason: DesiredState, Proof: proof, Phase: c.out, Released: top.Released, makes: c.numbered, discards: c.discarded(),
		below: c.below, over: top != c.want, since: top.Since,
	}
}

// saidSo are holds that stand on the claim itself.
func saidSo(claim *corev1.PersistentVolumeClaim) []Holder {
	var holders []Holder
	if words, ok := claim.Annotations[HoldAnnotation]; ok {
		holders = append(holders, Holder{
			Name: "Hold/" + claim.Name, Reason: Asked, Proof: "metadata.annotations[" + HoldAnnotation + "]: " + said(words),
			Released: "take the annotation away",
		})
	}
	for _, f := range claim.Finalizers {
		if f == snapshotFinalizer || f == cloneFinalizer {
			holders = append(holders, Holder{Name: "Finalizer/" + f, Reason: BeingCopied, Proof: "metadata.finalizers", Released: "wait for the copy"})
		}
	}
	return holders
}

// sorted puts holders in order, each object once, with what it names itself before
// what it has others name.
func sorted(holders []Holder) []Holder {
	slices.SortStableFunc(holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID), farther(a, b), cmp.Compare(a.Proof, b.Proof))
	})
	return slices.CompactFunc(holders, func(a, b Holder) bool { return a.Name == b.Name && a.UID == b.UID })
}
