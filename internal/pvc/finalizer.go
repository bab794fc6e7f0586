package pvc

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Step is what is next for the finalizers of a PVC.
type Step int8

const (
	// Leave changes nothing.
	Leave Step = iota
	// Write carries out the action of the verdict.
	Write
	// Keep postpones a terminating PVC that is in use. Events of pods start the next pass.
	Keep
	// AwaitPods waits for the built-in controller to remove the finalizer for pods.
	AwaitPods
	// Look reads pods live: a cache without a user proves nothing.
	Look
	// NeedsLive asks for a live read of the namespace: by the cache alone, a living PVC would lose the barrier.
	NeedsLive
)

// View is one PVC as the caches show it. It can show that the PVC is in use, and never that it is not.
type View struct {
	Claim *corev1.PersistentVolumeClaim
	// Pods are those of its namespace.
	Pods     *Index
	Mode     Mode
	Settings Settings
	// NamespaceLive reports that the labels of the namespace were read live after the PVC
	// was seen. Only then may a living PVC lose the barrier.
	NamespaceLive bool
}

// Verdict is what to do next, and why.
type Verdict struct {
	Step Step
	// Write is the action of step Write, onto the version that was judged.
	Write action.Action
	// Users are the pods that keep it.
	Users []Use
}

// Decide judges one PVC by the caches.
func Decide(v View) Verdict {
	if v.Claim.DeletionTimestamp == nil {
		return v.living()
	}
	has := func(f string) bool { return slices.Contains(v.Claim.Finalizers, f) }
	if !has(PodsFinalizer) && !has(BarrierFinalizer) {
		return Verdict{} // other finalizers keep it
	}
	if users := v.Pods.Holding(v.Claim); len(users) > 0 {
		return Verdict{Step: Keep, Users: users}
	}
	if v.Settings.takes(v.Claim) == "" {
		return Verdict{Step: AwaitPods}
	}
	return Verdict{Step: Look}
}

// InUse is why a terminating PVC stays that pods use.
func InUse(users []Use) action.Reason {
	return action.Reason{Code: "InUse", Sentence: staysUntil(Named(users))}
}

// Named names pods and their nodes.
func Named(users []Use) string {
	return few(each(users, func(u Use) string { return onNode(u.Pod, u.Node) }))
}

// each returns what a function makes of each element.
func each[T, N any](all []T, of func(T) N) (made []N) {
	for _, one := range all {
		made = append(made, of(one))
	}
	return made
}

func onNode(pod identity.Ref, node string) string { return fmt.Sprintf("%s on node %s", pod, node) }

// MayBeInUse is why a terminating PVC stays whose use record names existing pods.
func MayBeInUse(recorded Record) action.Reason {
	names := few(each(recorded, func(pod Recorded) string { return "pod " + pod.Name }))
	return action.Reason{Code: "InUseRecord", Sentence: staysUntil(names) + ", which its use record names"}
}

// living sets the finalizers of a living PVC. The API server refuses new finalizers on a terminating one.
func (v View) living() Verdict {
	have := v.Claim.Finalizers
	want := slices.DeleteFunc(slices.Clone(have), func(f string) bool { return f == BarrierFinalizer && v.Mode < Barrier })
	if len(want) < len(have) && !v.NamespaceLive {
		return Verdict{Step: NeedsLive}
	}
	if v.Settings.Alone && !slices.Contains(want, PodsFinalizer) {
		want = append(want, PodsFinalizer)
	}
	if v.Mode >= Barrier && !slices.Contains(want, BarrierFinalizer) {
		want = append(want, BarrierFinalizer)
	}
	switch {
	case !slices.Equal(have, want):
		because := action.Reason{Code: "Finalizers", Sentence: "mode " + v.Mode.String() + " asks for other finalizers"}
		return Verdict{Step: Write, Write: action.SetFinalizers{Object: refOf(v.Claim), Finalizers: want, Because: because}}
	case v.Settings.Alone && slices.ContainsFunc(v.Claim.Status.Conditions, isUnused):
		because := action.Reason{Code: "Stale", Sentence: "the built-in controller that keeps the condition Unused is off"}
		return Verdict{Step: Write, Write: action.SetCondition{Object: refOf(v.Claim), Condition: corev1.PodCondition{Type: unused}, Because: because}}
	}
	return Verdict{}
}

// unused is a condition by which people find PVCs that no pod uses.
const unused = corev1.PodConditionType(corev1.PersistentVolumeClaimUnused)

func isUnused(c corev1.PersistentVolumeClaimCondition) bool { return string(c.Type) == string(unused) }

func refOf(pvc *corev1.PersistentVolumeClaim) identity.Ref {
	return identity.RefOf(identity.KindPersistentVolumeClaim, pvc)
}

// judged is what the actions of this package have that only its decisions make. They have no events of their own.
type judged struct {
	object  identity.Ref
	because action.Reason
}

// Target is the incarnation and the version that was judged.
func (j judged) Target() identity.Ref { return j.object }

// Batch is the PVCs of one namespace, as they were before pods are read. The read judges only these.
type Batch struct {
	settings  Settings
	namespace string
	pvcs      []*corev1.PersistentVolumeClaim
}

// Take takes the snapshot: terminating PVCs with a finalizer that this controller removes, and
// living ones with a use record. The others are not judged.
func (s Settings) Take(namespace string, pvcs []*corev1.PersistentVolumeClaim) Batch {
	b := Batch{namespace: namespace, settings: s}
	for _, pvc := range pvcs {
		if pvc.Namespace == namespace && (s.takes(pvc) != "" || isRecorded(pvc)) {
			b.pvcs = append(b.pvcs, pvc)
		}
	}
	return b
}

// isRecorded reports whether a PVC lives and has a use record.
func isRecorded(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.DeletionTimestamp == nil && pvc.Annotations[UsersAnnotation] != ""
}

// takes is the finalizer that is removed next, or "". B waits for P: only without P does every kubelet refuse the PVC.
func (s Settings) takes(pvc *corev1.PersistentVolumeClaim) string {
	hasP := slices.Contains(pvc.Finalizers, PodsFinalizer)
	switch {
	case pvc.DeletionTimestamp == nil, pvc.UID == "", pvc.ResourceVersion == "", hasP && !s.Alone:
		return ""
	case hasP:
		return PodsFinalizer
	case slices.Contains(pvc.Finalizers, BarrierFinalizer):
		return BarrierFinalizer
	}
	return ""
}

// Names are the names of the PVCs: pods that use none of them need not be read.
func (b Batch) Names() []string {
	return each(b.pvcs, func(pvc *corev1.PersistentVolumeClaim) string { return pvc.Name })
}

// Recorded are the pods of the use records.
func (b Batch) Recorded() (uids []types.UID) {
	for _, pvc := range b.pvcs {
		record, _ := ParseRecord(pvc.Annotations[UsersAnnotation]) // an unreadable record keeps its PVC
		for _, pod := range record {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

// Read calls see for every pod of a namespace that uses a PVC of the batch or is named by its record, from a read that
// began after the call. More pods do no harm; an error means that some may be missing.
type Read func(namespace string, see func(*corev1.Pod)) error

// LiveView is what was read for a batch.
type LiveView struct {
	batch Batch
	index *Index
	err   error
}

// Look reads the pods for the batch, after the batch was taken.
func (b Batch) Look(read Read) LiveView {
	v := LiveView{batch: b, index: NewIndex()}
	if len(b.pvcs) > 0 {
		v.err = read(b.namespace, v.index.See)
	}
	return v
}

// Err is why the read failed, or nil.
func (v LiveView) Err() error { return v.err }

// Release removes one finalizer from the version of a PVC that was judged. Only LiveView.Judge
// returns one with a target.
type Release struct {
	judged
	takes string
	stays []string
}

// Takes is the finalizer that is removed.
func (r Release) Takes() string { return r.takes }

// Finalizers are those that stay, in their order.
func (r Release) Finalizers() []string { return slices.Clone(r.stays) }

// About implements action.Action.
func (r Release) About() action.About { return action.About{Verb: "release", Because: r.because} }

// Kept is a PVC of the batch that stays, and its holders.
type Kept struct {
	Claim identity.Ref
	// Users are bound pods; Recorded are pods of the use record.
	Users    []Use
	Recorded Record
	// Err is why the users are unknown, which counts as in use.
	Err error
}

// Judge decides for every terminating PVC of the batch whether its finalizer is removed.
func (v LiveView) Judge() (releases []Release, kept []Kept) {
	for _, pvc := range v.batch.pvcs {
		takes := v.batch.settings.takes(pvc)
		if takes == "" {
			continue
		}
		k := v.holders(pvc)
		if k.Err != nil || len(k.Users) > 0 || len(k.Recorded) > 0 {
			kept = append(kept, k)
			continue
		}
		stays := slices.DeleteFunc(slices.Clone(pvc.Finalizers), func(f string) bool { return f == takes })
		because := action.Reason{Code: "NotInUse", Sentence: "no bound pod uses the PVC, read after its deletion was seen"}
		releases = append(releases, Release{judged{refOf(pvc), because}, takes, stays})
	}
	return releases, kept
}

func (v LiveView) holders(pvc *corev1.PersistentVolumeClaim) Kept {
	k := Kept{Claim: refOf(pvc), Err: v.err}
	if k.Err != nil {
		return k
	}
	k.Users = v.index.Holding(pvc)
	record, err := ParseRecord(pvc.Annotations[UsersAnnotation])
	k.Err = err
	// The record of a terminating PVC cannot grow: a recorded pod that the read does not show is gone for ever.
	k.Recorded = record.Without(v.gone)
	return k
}

// gone reports whether the read does not show a recorded pod.
func (v LiveView) gone(pod Recorded) bool { return !v.index.pods[pod.UID] }

// DecideVolume sets the finalizer of a PersistentVolume where no built-in controller does. A volume is in use while it
// is bound, and says so itself: no second read is needed. A terminating volume is never bound anew.
func DecideVolume(volume *corev1.PersistentVolume) (action.SetFinalizers, bool) {
	has, terminating := slices.Contains(volume.Finalizers, VolumeFinalizer), volume.DeletionTimestamp != nil
	a := action.SetFinalizers{Object: identity.RefOf(identity.KindPersistentVolume, volume)}
	switch {
	case !terminating && !has:
		a.Finalizers = append(slices.Clone(volume.Finalizers), VolumeFinalizer)
		a.Because = action.Reason{Code: "Finalizers", Sentence: "a bound volume stays"}
	case terminating && has && volume.Status.Phase != corev1.VolumeBound:
		a.Finalizers = slices.DeleteFunc(slices.Clone(volume.Finalizers), func(f string) bool { return f == VolumeFinalizer })
		a.Because = action.Reason{Code: "NotBound", Sentence: "the volume is terminating and not bound"}
	default:
		return action.SetFinalizers{}, false
	}
	return a, true
}

// maxNamed is how many names are listed before the rest is counted.
const maxNamed = 8

// few joins sorted names, and counts those beyond maxNamed.
func few(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	return first(slices.Compact(names), maxNamed)
}

// first joins at most so many names, and counts the others.
func first(names []string, atMost int) string {
	if more := len(names) - atMost; more > 0 {
		names = append(slices.Clone(names[:atMost]), fmt.Sprintf("+%d", more))
	}
	return strings.Join(names, ", ")
}
