package pvc_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/expect"
)

var cmpEmpty = cmpopts.EquateEmpty()

func TestDecide(t *testing.T) {
	beside, alone := pvc.Settings{}, pvc.Settings{Alone: true}
	used := index(pod("web", []string{"data"}))
	unused := func(c *corev1.PersistentVolumeClaim) {
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue}}
	}
	for _, tt := range []struct {
		name       string
		claim      *corev1.PersistentVolumeClaim
		pods       *pvc.Index
		mode       pvc.Mode
		settings   pvc.Settings
		step       pvc.Step
		finalizers []string
	}{
		{"complete", claim("data"), index(), pvc.Barrier, beside, pvc.Leave, nil},
		{"without B", claim("data", finalizers(p)), used, pvc.Barrier, beside, pvc.Write, []string{p, b}},
		{"without B, mode observe", claim("data", finalizers(p)), used, pvc.Observe, beside, pvc.Leave, nil},
		{"B, mode off", claim("data"), used, pvc.Off, beside, pvc.Write, []string{p}},
		{"B, mode off, alone and without P", claim("data", finalizers(b)), used, pvc.Off, alone, pvc.Write, []string{p}},
		{"without any, beside", claim("data", finalizers()), index(), pvc.Hold, beside, pvc.Write, []string{b}},
		{"without any, alone", claim("data", finalizers("x/1")), index(), pvc.Barrier, alone, pvc.Write, []string{"x/1", p, b}},
		{"without any, alone and off", claim("data", finalizers()), index(), pvc.Off, alone, pvc.Write, []string{p}},
		{"condition Unused, alone", claim("data", unused), index(), pvc.Barrier, alone, pvc.Write, nil},
		{"condition Unused, beside", claim("data", unused), index(), pvc.Barrier, beside, pvc.Leave, nil},
		{"terminating, no finalizer of ours", claim("data", dying, finalizers("x/1")), index(), pvc.Barrier, alone, pvc.Leave, nil},
		{"terminating, without B", claim("data", dying, finalizers(p)), index(), pvc.Barrier, beside, pvc.AwaitPods, nil},
		{"terminating, used", claim("data", dying), used, pvc.Barrier, beside, pvc.Keep, nil},
		{"terminating, P of the built-in controller", claim("data", dying), index(), pvc.Barrier, beside, pvc.AwaitPods, nil},
		{"terminating, P is ours", claim("data", dying), index(), pvc.Barrier, alone, pvc.Look, nil},
		{"terminating, without P", claim("data", dying, finalizers(b)), index(), pvc.Barrier, beside, pvc.Look, nil},
		{"terminating, without P, mode off since", claim("data", dying, finalizers(b)), index(), pvc.Off, beside, pvc.Look, nil},
		{"terminating, without P, used", claim("data", dying, finalizers(b)), used, pvc.Barrier, beside, pvc.Keep, nil},
	} {
		view := pvc.View{Claim: tt.claim, Pods: tt.pods, Mode: tt.mode, Settings: tt.settings}
		cached := pvc.Decide(view)
		view.NamespaceLive = true
		got := pvc.Decide(view)
		expect.Equalf(t, tt.step, got.Step, "%s: step", tt.name)
		if (got.Write != nil) != (tt.step == pvc.Write) || got.Write != nil && (got.Write.Target().UID != "uid-data" || got.Write.Target().ResourceVersion != "7") {
			t.Errorf("%s: writes %+v", tt.name, got.Write)
		}
		set, _ := got.Write.(action.SetFinalizers)
		diff := cmp.Diff(tt.finalizers, set.Finalizers, cmpEmpty)
		expect.That(t, diff == "", "%s: finalizers (-want +got):\n%s", tt.name, diff)
		if loses := set.Finalizers != nil && slices.Contains(tt.claim.Finalizers, b) && !slices.Contains(set.Finalizers, b); (cached.Step == pvc.NeedsLive) != loses {
			t.Errorf("%s: by a cached namespace: step %d", tt.name, cached.Step)
		}
	}
}

func TestModeOf(t *testing.T) {
	settings := pvc.Settings{Mode: pvc.Barrier, Exempt: []string{"kube-system"}}
	hold := map[string]string{pvc.ModeKey: "hold"}
	own := func(c *corev1.PersistentVolumeClaim) { controlledBy("Pod", "x")(c) }
	for _, tt := range []struct {
		name   string
		claim  *corev1.PersistentVolumeClaim
		labels map[string]string
		want   pvc.Mode
	}{
		{"of the cluster", claim("data"), nil, pvc.Barrier},
		{"of the namespace", claim("data"), hold, pvc.Hold},
		{"of the PVC", claim("data", annotated(pvc.ModeKey, "observe")), hold, pvc.Observe},
		{"misspelt", claim("data", annotated(pvc.ModeKey, "of")), hold, pvc.Hold},
		{"ephemeral", claim("owner-data", own), hold, pvc.Off},
		{"controlled by a pod of another name", claim("data-owner", own), hold, pvc.Hold},
		{"exempt", claim("data", annotated(pvc.ModeKey, "strict"), func(c *corev1.PersistentVolumeClaim) { c.Namespace = "kube-system" }), hold, pvc.Off},
	} {
		expect.Equalf(t, tt.want, settings.ModeOf(tt.claim, tt.labels), "%s", tt.name)
	}
	for m := pvc.Off; m <= pvc.Strict; m++ {
		got, ok := pvc.ParseMode(m.String())
		expect.That(t, ok && got == m, "%s is read as %s", m, got)
	}
}

func TestReasonsNameEightUsers(t *testing.T) {
	var pods []*corev1.Pod
	for _, name := range strings.Split("jihgfedcba", "") {
		pods = append(pods, pod(name, []string{"data"}))
	}
	got := pvc.InUse(pvc.Decide(pvc.View{Claim: claim("data", dying), Pods: index(pods...)}).Users)
	expect.That(t, got.Code == "InUse" && strings.HasSuffix(got.Sentence, "pod g on node n1, pod h on node n1, +2"),
		"got %+v", got)
}

func ephemeral(name string) func(*corev1.Pod) {
	return func(o *corev1.Pod) {
		o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	}
}

func TestWhichPodHolds(t *testing.T) {
	data := claim("data")
	of := func(pod string) *corev1.PersistentVolumeClaim {
		c := claim("web-scratch")
		controlledBy("Pod", types.UID("uid-"+pod))(c)
		return c
	}
	unknown := func(o *corev1.Pod) { o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{Name: "new"}) }
	for _, tt := range []struct {
		name        string
		pod         *corev1.Pod
		claim       *corev1.PersistentVolumeClaim
		holds, uses bool
	}{
		{"running", pod("web", []string{"data"}), data, true, true},
		{"not bound", pod("web", []string{"data"}, unbound), data, false, true},
		{"ephemeral", pod("web", nil, ephemeral("scratch")), of("web"), true, true},
		{"ephemeral, PVC of another pod", pod("web", nil, ephemeral("scratch")), of("other"), false, false},
		{"ephemeral, PVC without owner", pod("web", nil, ephemeral("scratch")), claim("web-scratch"), false, false},
		{"ephemeral, shut down", pod("web", nil, ephemeral("scratch"), leaving(0)), of("web"), false, true},
		{"unknown kind of volume", pod("web", nil, unknown), data, true, true},
		{"unknown kind of volume, not bound", pod("web", nil, unknown, unbound), data, false, false},
	} {
		x := index(tt.pod)
		expect.Equalf(t, tt.holds, len(x.Holding(tt.claim)) > 0, "%s: holds", tt.name)
		expect.Equalf(t, tt.uses, len(x.Uses(tt.claim)) > 0, "%s: uses", tt.name)
	}
}

func TestRemoval(t *testing.T) {
	const theirs = "example.com/theirs"
	for name, tt := range map[string]struct {
		removal     pvc.Settings
		terminating bool
		stays       []string // of finalizers, annotations and labels
	}{
		"beside the built-in controller": {pvc.Settings{}, false, []string{p, theirs, theirs}},
		"alone":                          {pvc.Settings{Alone: true}, false, []string{theirs, theirs}},
		"terminating":                    {pvc.Settings{Alone: true}, true, []string{p, theirs, b, theirs, pvc.UsersAnnotation}},
	} {
		meta := metav1.ObjectMeta{Finalizers: []string{p, theirs, b}, Labels: map[string]string{pvc.ModeKey: "hold"}, Annotations: map[string]string{
			pvc.HoldersAnnotation: "x", pvc.UsersAnnotation: "a=1", pvc.HoldAnnotation: "mine", pvc.ModeKey: "hold", theirs: "y",
		}}
		if tt.terminating {
			meta.DeletionTimestamp = &metav1.Time{Time: noon}
		}
		took := tt.removal.Strip(&meta)
		got := slices.Concat(meta.Finalizers, slices.Sorted(maps.Keys(meta.Annotations)), slices.Sorted(maps.Keys(meta.Labels)))
		expect.That(t, took && slices.Equal(got, tt.stays), "%s: %t, got %q, want %q", name, took, got, tt.stays)
		expect.That(t, !tt.removal.Strip(&meta), "%s: the second time it took something", name)
	}
}

func TestForgetRemovesPodsThatAreGone(t *testing.T) {
	living := claim("data", annotated(pvc.UsersAnnotation, "gone=1,web=uid-web"))
	current, unreadable := claim("logs", annotated(pvc.UsersAnnotation, "web=uid-web")), claim("unread", annotated(pvc.UsersAnnotation, "?"))
	batch := pvc.Settings{}.Take(ns, []*corev1.PersistentVolumeClaim{living, current, unreadable, claim("none")})
	web := pod("web", nil, unbound)
	writes := batch.Look(reading(nil, web)).Forget()
	if len(writes) != 1 || writes[0].Annotations[pvc.UsersAnnotation] != "web=uid-web" || writes[0].Target().UID != living.UID {
		t.Errorf("got %+v", writes)
	}
	expect.Emptyf(t, batch.Look(reading(errors.New("lost"), web)).Forget(), "after an error")
	releases, kept := batch.Look(reading(nil, web)).Judge()
	expect.That(t, len(releases)+len(kept) == 0, "living PVCs are judged: %v %v", releases, kept)
}
