package pvc

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

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
	// NeedsLive asks for a live read of the namespace: by the cache alone, a living PVC would
	// lose the barrier.
	NeedsLive
)

// View is one PVC as the caches show it. It can show that the PVC is in use, and never
// that it is not.
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
	Write   action.Action
	Users   []Use
	Because action.Reason
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
		return Verdict{Step: Keep, Users: users, Because: InUse(users)}
	}
	if v.Settings.takes(v.Claim) == "" {
		return Verdict{Step: AwaitPods, Because: action.Reason{Code: "AwaitingPodProtection", Sentence: PodsFinalizer + " is still there, and not ours to take"}}
	}
	return Verdict{Step: Look}
}

// InUse is why a terminating PVC stays that pods use.
func InUse(users []Use) action.Reason {
	names := make([]string, len(users))
	for i, use := range users {
		names[i] = onNode(use.Pod, use.Node)
	}
	return action.Reason{Code: "InUse", Sentence: staysUntil(names)}
}

// MayBeInUse is why a terminating PVC stays whose use record names existing pods.
func MayBeInUse(recorded Record) action.Reason {
	names := make([]string, len(recorded))
	for i, pod := range recorded {
		names[i] = "pod " + pod.Name
	}
	return action.Reason{Code: "InUseRecord", Sentence: "is being deleted, and stays: on record as users, and there: " + named(names)}
}

// living sets the finalizers of a living PVC. The API server refuses new finalizers on a
// terminating one.
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
	ref := identity.RefOf(identity.KindPersistentVolumeClaim, v.Claim)
	switch {
	case !slices.Equal(have, want):
		because := action.Reason{Code: "Finalizers", Sentence: "mode " + v.Mode.String() + " asks for other finalizers"}
		return Verdict{Step: Write, Write: action.SetFinalizers{Object: ref, Finalizers: want, Because: because}}
	case v.Settings.Alone && slices.ContainsFunc(v.Claim.Status.Conditions, isUnused):
		return Verdict{Step: Write, Write: DropUnused{ref}} // no built-in controller runs that would write it
	}
	return Verdict{}
}

func isUnused(c corev1.PersistentVolumeClaimCondition) bool {
	return c.Type == corev1.PersistentVolumeClaimUnused
}

// maxNamed is how many names are listed before the rest is counted.
const maxNamed = 8

// named joins sorted names, and counts those beyond maxNamed.
func named(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed:maxNamed], fmt.Sprintf("+%d", more))
	}
	return strings.Join(names, ", ")
}
