package pvc

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Batch is the terminating claims of one namespace, as they were before any pod
// was read for them. Only these can be judged by what is read next.
type Batch struct {
	namespace string
	claims    []*corev1.PersistentVolumeClaim
	// recorded live, and name pods that may be gone.
	recorded []*corev1.PersistentVolumeClaim
	alone    bool
}

// Take takes the snapshot: of the claims of a namespace, those that are on their
// way out with a finalizer of ours to take, and those that live and name pods. The
// rest are left out, not judged.
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

// takes is the finalizer of a claim that is ours to take next, or "". B waits for
// P, whoever owns that: only from then on does every kubelet refuse the claim.
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

// Empty tells whether there is nothing to read pods for.
func (b Batch) Empty() bool { return len(b.claims)+len(b.recorded) == 0 }

// Names are the names of the claims: what does not use one of them need not be read.
func (b Batch) Names() []string {
	var names []string
	for _, claim := range slices.Concat(b.claims, b.recorded) {
		names = append(names, claim.Name)
	}
	return names
}

// Recorded are the pods that the claims themselves name.
func (b Batch) Recorded() []types.UID {
	var uids []types.UID
	for _, claim := range slices.Concat(b.claims, b.recorded) {
		record, _ := ParseRecord(claim.Annotations[UsersAnnotation]) // what cannot be read keeps its claim
		for _, pod := range record {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

// Read hands every pod of a namespace to see that may use a claim of the batch or
// is named by one, from a reading that began after Read was called. More pods do no
// harm. An error says that some may be missing.
type Read func(namespace string, see func(*corev1.Pod)) error

var errNotRead = errors.New("pods were not read")

// LiveView is what was read for a batch. The zero value says that all is in use.
type LiveView struct {
	batch Batch
	index *Index
	err   error
}

// Look reads the pods for the batch: after it was taken, by construction.
func (b Batch) Look(read Read) LiveView {
	v := LiveView{batch: b, index: NewIndex(), err: errNotRead}
	if b.Empty() || read == nil {
		return v
	}
	v.err = read(b.namespace, v.index.See)
	return v
}

// Err tells why nothing can be released, if reading failed.
func (v LiveView) Err() error {
	if v.index == nil {
		return errNotRead
	}
	return v.err
}

// Release takes one finalizer from exactly the claim that was judged. It can be
// had from a LiveView alone; the zero value has no target and must not be carried
// out.
type Release struct {
	claim identity.Ref
	takes string
	stays []string
	why   action.Reason
}

// Target is the incarnation and the version that was judged.
func (r Release) Target() identity.Ref { return r.claim }

// Takes is the finalizer that goes.
func (r Release) Takes() string { return r.takes }

// Finalizers are those that stay, in their order.
func (r Release) Finalizers() []string { return slices.Clone(r.stays) }

// Why is the reason.
func (r Release) Why() action.Reason { return r.why }

// Kept is a claim of the batch that stays, and who holds it.
type Kept struct {
	Claim identity.Ref
	// Users are bound pods; Recorded are pods that the claim itself names.
	Users    []Use
	Recorded Record
	// Err is why nobody can tell, which is as good as in use.
	Err error
}

// free tells whether nothing is known that a claim stays for.
func (k Kept) free() bool {
	return k.Err == nil && len(k.Users) == 0 && len(k.Recorded) == 0
}

// Judge tells of every claim of the batch whether it may go.
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
	// A record cannot grow once the claim is terminating: a pod that it names and
	// that is not among those read after that is gone for ever.
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
