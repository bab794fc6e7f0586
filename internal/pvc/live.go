package pvc

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Batch is the terminating PVCs of one namespace, as they were before pods are read. The read
// judges only these.
type Batch struct {
	namespace string
	claims    []*corev1.PersistentVolumeClaim
	// recorded are living PVCs with a use record.
	recorded []*corev1.PersistentVolumeClaim
	alone    bool
}

// Take takes the snapshot: terminating PVCs with a finalizer that this controller removes, and
// living ones with a use record. The others are not judged.
func (s Settings) Take(namespace string, claims []*corev1.PersistentVolumeClaim) Batch {
	b := Batch{namespace: namespace, alone: s.Alone}
	for _, claim := range claims {
		switch {
		case claim.Namespace != namespace:
		case s.takes(claim) != "":
			b.claims = append(b.claims, claim)
		case claim.DeletionTimestamp == nil && claim.Annotations[UsersAnnotation] != "":
			b.recorded = append(b.recorded, claim)
		}
	}
	return b
}

func (b Batch) takes(claim *corev1.PersistentVolumeClaim) string {
	return Settings{Alone: b.alone}.takes(claim)
}

// takes is the finalizer that is removed next, or "". B waits for P: only without P does every
// kubelet refuse the PVC.
func (s Settings) takes(claim *corev1.PersistentVolumeClaim) string {
	switch {
	case claim.DeletionTimestamp == nil, claim.UID == "", claim.ResourceVersion == "":
		return ""
	case slices.Contains(claim.Finalizers, PodsFinalizer):
		if s.Alone {
			return PodsFinalizer
		}
		return ""
	case slices.Contains(claim.Finalizers, BarrierFinalizer):
		return BarrierFinalizer
	}
	return ""
}

// Empty reports whether no pods need to be read.
func (b Batch) Empty() bool { return len(b.claims)+len(b.recorded) == 0 }

// Names are the names of the PVCs: pods that use none of them need not be read.
func (b Batch) Names() []string {
	var names []string
	for _, claim := range slices.Concat(b.claims, b.recorded) {
		names = append(names, claim.Name)
	}
	return names
}

// Recorded are the pods of the use records.
func (b Batch) Recorded() []types.UID {
	var uids []types.UID
	for _, claim := range slices.Concat(b.claims, b.recorded) {
		record, _ := ParseRecord(claim.Annotations[UsersAnnotation]) // an unreadable record keeps its PVC
		for _, pod := range record {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

// Read calls see for every pod of a namespace that uses a PVC of the batch or is named by its
// record, from a read that began after the call. More pods do no harm; an error means that
// some may be missing.
type Read func(namespace string, see func(*corev1.Pod)) error

var errNotRead = errors.New("pods were not read")

// LiveView is what was read for a batch. In the zero value all PVCs are in use.
type LiveView struct {
	batch Batch
	index *Index
	err   error
}

// Look reads the pods for the batch, after the batch was taken.
func (b Batch) Look(read Read) LiveView {
	v := LiveView{batch: b, index: NewIndex(), err: errNotRead}
	if b.Empty() || read == nil {
		return v
	}
	v.err = read(b.namespace, v.index.See)
	return v
}

// Err is why the read failed, or nil.
func (v LiveView) Err() error {
	if v.index == nil {
		return errNotRead
	}
	return v.err
}

// Release removes one finalizer from the version of a PVC that was judged. Only LiveView.Judge
// returns one with a target.
type Release struct {
	claim identity.Ref
	takes string
	stays []string
	why   action.Reason
}

// Target is the incarnation and the version that was judged.
func (r Release) Target() identity.Ref { return r.claim }

// Takes is the finalizer that is removed.
func (r Release) Takes() string { return r.takes }

// Finalizers are those that stay, in their order.
func (r Release) Finalizers() []string { return slices.Clone(r.stays) }

// Why is the reason.
func (r Release) Why() action.Reason { return r.why }

// Kept is a PVC of the batch that stays, and its holders.
type Kept struct {
	Claim identity.Ref
	// Users are bound pods; Recorded are pods of the use record.
	Users    []Use
	Recorded Record
	// Err is why the users are unknown, which counts as in use.
	Err error
}

// free reports whether nothing holds the PVC.
func (k Kept) free() bool {
	return k.Err == nil && len(k.Users) == 0 && len(k.Recorded) == 0
}

// Judge decides for every terminating PVC of the batch whether its finalizer is removed.
func (v LiveView) Judge() (releases []Release, kept []Kept) {
	for _, claim := range v.batch.claims {
		k := v.holders(claim)
		if !k.free() {
			kept = append(kept, k)
			continue
		}
		releases = append(releases, v.release(claim))
	}
	return releases, kept
}

func (v LiveView) holders(claim *corev1.PersistentVolumeClaim) Kept {
	k := Kept{Claim: identity.RefOf(identity.KindPersistentVolumeClaim, claim), Err: v.Err()}
	if k.Err != nil {
		return k
	}
	k.Users = v.index.Holding(claim)
	record, err := ParseRecord(claim.Annotations[UsersAnnotation])
	k.Err = err
	// The record of a terminating PVC cannot grow: a recorded pod that the read does not show
	// is gone for ever.
	k.Recorded = record.Without(func(pod Recorded) bool { return !v.index.exists(pod.UID) })
	return k
}

func (x *Index) exists(uid types.UID) bool { return x.pods[uid] }

func (v LiveView) release(claim *corev1.PersistentVolumeClaim) Release {
	takes := v.batch.takes(claim)
	stays := slices.DeleteFunc(slices.Clone(claim.Finalizers), func(f string) bool { return f == takes })
	return Release{
		claim: identity.RefOf(identity.KindPersistentVolumeClaim, claim), takes: takes, stays: stays,
		why: action.Reason{Code: "NotInUse", Sentence: "no bound pod uses the claim, read after its deletion was seen"},
	}
}
