package pvc_test

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/pvc"
)

func boundToVolume(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }

// saying is a claim that says whether it is unused, and something else.
func saying(unused corev1.ConditionStatus) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
			{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue},
			{Type: corev1.PersistentVolumeClaimUnused, Status: unused},
		}
	}
}

func stillRuns(o *corev1.Pod) {
	o.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

// The rows are those of the controller that is built in: another use than that which
// keeps a claim.
func TestAClaimSaysWhetherPodsNameIt(t *testing.T) {
	const says, denies, nothing = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionStatus("")
	named := []string{"data"}
	alone := pvc.Settings{Alone: true, Mode: pvc.Barrier}
	ephemeral := func(o *corev1.Pod) {
		o.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	}
	for _, tt := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		pods  []*corev1.Pod
		want  corev1.ConditionStatus
	}{
		{"nobody", claim("data", boundToVolume), nil, says},
		{"a pod that runs", claim("data", boundToVolume), []*corev1.Pod{pod("a", named)}, denies},
		{"a pod that was never bound", claim("data", boundToVolume), []*corev1.Pod{pod("a", named, unbound)}, denies},
		{"a pod that succeeded", claim("data", boundToVolume), []*corev1.Pod{pod("a", named, phase(corev1.PodSucceeded))}, says},
		{"a pod that failed", claim("data", boundToVolume), []*corev1.Pod{pod("a", named, phase(corev1.PodFailed))}, says},
		{"a pod on its way out that runs", claim("data", boundToVolume), []*corev1.Pod{pod("a", named, leaving(30), stillRuns)}, denies},
		{"a pod on its way out of which nothing runs", claim("data", boundToVolume), []*corev1.Pod{pod("a", named, leaving(30))}, says},
		{"one of two is over", claim("data", boundToVolume), []*corev1.Pod{pod("a", named, phase(corev1.PodFailed)), pod("b", named)}, denies},
		{"a pod of another claim", claim("data", boundToVolume), []*corev1.Pod{pod("a", []string{"logs"})}, says},
		{"its own pod", claim("a-scratch", boundToVolume, func(c *corev1.PersistentVolumeClaim) { controlledBy("Pod", "uid-a")(c) }), []*corev1.Pod{pod("a", nil, ephemeral)}, denies},
		{"a pod whose own it is not", claim("a-scratch", boundToVolume), []*corev1.Pod{pod("a", nil, ephemeral)}, says},
		{"said already", claim("data", boundToVolume, saying(says)), nil, nothing},
		{"denied already", claim("data", boundToVolume, saying(denies)), []*corev1.Pod{pod("a", named)}, nothing},
		{"true no more", claim("data", boundToVolume, saying(says)), []*corev1.Pod{pod("a", named)}, denies},
		{"true again", claim("data", boundToVolume, saying(denies)), nil, says},
		{"said as nobody says it", claim("data", boundToVolume, saying(corev1.ConditionUnknown)), nil, says},
		{"on its way out", claim("data", boundToVolume, dying), nil, nothing},
		{"not bound to a volume yet", claim("data"), nil, nothing},
	} {
		v := pvc.View{Claim: tt.claim, Pods: index(tt.pods...), Mode: alone.ModeOf(tt.claim, nil), Settings: alone}
		got, status := pvc.DecideUnused(v, noon), nothing
		if got.Write != nil {
			status = got.Write.Is.Status
		}
		if status != tt.want || got.Awaits {
			t.Errorf("%s: got %q, awaits %t, want %q", tt.name, status, got.Awaits, tt.want)
		}
	}
}

// Were a condition and a finalizer written at once, one of the two would be refused.
func TestAClaimThatIsAboutToBeDressedIsLeftAlone(t *testing.T) {
	alone := pvc.Settings{Alone: true}
	v := pvc.View{Claim: claim("data", boundToVolume, finalizers(b)), Pods: index(), Mode: pvc.Barrier, Settings: alone}
	if got := pvc.DecideUnused(v, noon); got.Write != nil || !got.Awaits {
		t.Errorf("without P: %+v", got)
	}
	v.Claim = claim("data", boundToVolume, finalizers(p, b))
	if got := pvc.DecideUnused(v, noon); got.Write == nil || got.Awaits {
		t.Errorf("dressed: %+v", got)
	}
}

func TestLawsOfUnusedClaims(t *testing.T) {
	t.Run("saidOnceAndOfTheLiving", func(t *testing.T) { law(t, saidOnceAndOfTheLiving, "said", "denied", "dying", "awaits") })
}

// What is written names the incarnation and version judged, is true, and is written
// once; nothing is written on what is on its way out; a release costs no look more.
func saidOnceAndOfTheLiving(t *rapid.T, m met) {
	s := drawScene(t)
	for _, c := range s.claims {
		c.Status.Phase = rapid.SampledFrom([]corev1.PersistentVolumeClaimPhase{corev1.ClaimBound, corev1.ClaimBound, corev1.ClaimPending, corev1.ClaimLost}).Draw(t, "phase")
		if rapid.IntRange(0, 3).Draw(t, "in order") > 0 {
			c.DeletionTimestamp, c.Finalizers = nil, []string{p, b}
		}
		before, v := c.DeepCopy(), pvc.View{Claim: c, Pods: index(s.pods...), Mode: s.settings.Mode, Settings: s.settings}
		got := pvc.DecideUnused(v, noon)
		m.when("dying", c.DeletionTimestamp != nil)
		m.when("awaits", got.Awaits)
		if !reflect.DeepEqual(before, c) {
			t.Fatal("the claim was changed")
		}
		if got.Write == nil {
			continue
		}
		named := slices.ContainsFunc(s.pods, func(o *corev1.Pod) bool {
			return !pvc.NothingRuns(o) && slices.Contains(pvc.ClaimsOf(o), c.Name)
		})
		is, onto := got.Write.Is, got.Write.Target()
		m.when("denied", named)
		m.when("said", !named)
		if c.DeletionTimestamp != nil || c.Status.Phase != corev1.ClaimBound || got.Awaits {
			t.Fatalf("said of %s, which is %s, deleted %v", c.Name, c.Status.Phase, c.DeletionTimestamp)
		}
		if (is.Status == corev1.ConditionFalse) != named || onto.UID != c.UID || onto.ResourceVersion != c.ResourceVersion || !is.LastTransitionTime.Time.Equal(noon) {
			t.Fatalf("%s, named %t: %+v onto %+v", c.Name, named, is, onto)
		}
		c.Status.Conditions = append(c.Status.Conditions, is)
		if again := pvc.DecideUnused(v, noon); again.Write != nil {
			t.Fatalf("said twice: %+v", again.Write.Is)
		}
	}
}
