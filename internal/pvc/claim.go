package pvc

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
)

// Step is what is next for a claim's finalizers.
type Step int8

const (
	// Leave it: nothing is to be done.
	Leave Step = iota
	// Dress it: a living claim lacks a finalizer, or has one that it need not have.
	Dress
	// Keep it: it is terminating and in use, says the cache. Pods wake us.
	Keep
	// AwaitPods is said while P is there and not ours to take.
	AwaitPods
	// Look once more: the cache shows no user, which proves nothing. Take a batch and look.
	Look
	// AskNamespace first: a living claim has B, which by what is known of its namespace it
	// need not have.
	AskNamespace
)

// View is one claim as the caches show it. It can say that a claim is in use, and
// never that it is not.
type View struct {
	Claim *corev1.PersistentVolumeClaim
	// Pods are those of its namespace.
	Pods     *Index
	Mode     Mode
	Settings Settings
	// NamespaceLive: the mode is what the namespace says, read live after the claim was
	// seen. Without that no living claim loses B.
	NamespaceLive bool
}

// Verdict is what to do next, and why.
type Verdict struct {
	Step Step
	// Finalizers are what a claim that is dressed shall have.
	Finalizers []string
	Users      []Use
	Because    action.Reason
}

// Decide judges one claim by the caches.
func Decide(v View) Verdict {
	if v.Claim.DeletionTimestamp == nil {
		return v.dress()
	}
	has := func(f string) bool { return slices.Contains(v.Claim.Finalizers, f) }
	if !has(PodsFinalizer) && !has(BarrierFinalizer) {
		return Verdict{} // what else keeps it is not ours
	}
	if users := v.Pods.Holding(v.Claim); len(users) > 0 {
		return Verdict{Step: Keep, Users: users, Because: InUse(users)}
	}
	if v.Settings.takes(v.Claim) == "" {
		return Verdict{Step: AwaitPods, Because: action.Reason{Code: "AwaitingPodProtection", Sentence: PodsFinalizer + " is still there, and not ours to take"}}
	}
	return Verdict{Step: Look}
}

// InUse is why a claim stays that pods use, in the words of its explanation.
func InUse(users []Use) action.Reason {
	names := make([]string, len(users))
	for i, use := range users {
		names[i] = onNode(use.Pod, use.Node)
	}
	return action.Reason{Code: "InUse", Sentence: staysUntil(names)}
}

// MayBeInUse is why a claim stays that itself names pods which are there.
func MayBeInUse(recorded Record) action.Reason {
	names := make([]string, len(recorded))
	for i, pod := range recorded {
		names[i] = "pod " + pod.Name
	}
	return action.Reason{Code: "InUseRecord", Sentence: "is being deleted, and stays: on record as users, and there: " + named(names)}
}

// dress gives a living claim its finalizers. Nothing is ever added to one that is
// on its way out: the API server would refuse it, and it would come too late.
func (v View) dress() Verdict {
	have := v.Claim.Finalizers
	want := slices.DeleteFunc(slices.Clone(have), func(f string) bool { return f == BarrierFinalizer && v.Mode < Barrier })
	if len(want) < len(have) && !v.NamespaceLive {
		return Verdict{Step: AskNamespace}
	}
	if v.Settings.Alone && !slices.Contains(want, PodsFinalizer) {
		want = append(want, PodsFinalizer)
	}
	if v.Mode >= Barrier && !slices.Contains(want, BarrierFinalizer) {
		want = append(want, BarrierFinalizer)
	}
	if slices.Equal(have, want) {
		return Verdict{}
	}
	return Verdict{Step: Dress, Finalizers: want, Because: action.Reason{Code: "Finalizers", Sentence: "mode " + v.Mode.String() + " asks for other finalizers"}}
}

// maxNamed is how many are named before the rest is a number.
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
