package pvc_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/pvc"
)

var cmpEmpty = cmpopts.EquateEmpty()

func TestDecide(t *testing.T) {
	beside, alone := pvc.Settings{}, pvc.Settings{Alone: true}
	used := index(pod("web", []string{"data"}))
	tests := []struct {
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
		{"Unused, and the built-in controller runs", claim("data", unused), index(), pvc.Barrier, beside, pvc.Leave, nil},
		{"terminating and bare", claim("data", dying, finalizers("x/1")), index(), pvc.Barrier, alone, pvc.Leave, nil},
		{"terminating, without B", claim("data", dying, finalizers(p)), index(), pvc.Barrier, beside, pvc.AwaitPods, nil},
		{"terminating, used", claim("data", dying), used, pvc.Barrier, beside, pvc.Keep, nil},
		{"terminating, P is the built-in's", claim("data", dying), index(), pvc.Barrier, beside, pvc.AwaitPods, nil},
		{"terminating, P is ours", claim("data", dying), index(), pvc.Barrier, alone, pvc.Look, nil},
		{"terminating, P went", claim("data", dying, finalizers(b)), index(), pvc.Barrier, beside, pvc.Look, nil},
		{"terminating, P went, mode off since", claim("data", dying, finalizers(b)), index(), pvc.Off, beside, pvc.Look, nil},
		{"terminating, P went, used", claim("data", dying, finalizers(b)), used, pvc.Barrier, beside, pvc.Keep, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			view := pvc.View{Claim: tt.claim, Pods: tt.pods, Mode: tt.mode, Settings: tt.settings}
			cached := pvc.Decide(view)
			view.NamespaceLive = true
			got := pvc.Decide(view)
			if got.Step != tt.step {
				t.Errorf("step: got %d, want %d", got.Step, tt.step)
			}
			set, _ := got.Write.(action.SetFinalizers)
			if diff := cmp.Diff(tt.finalizers, set.Finalizers, cmpEmpty); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
			if loses := set.Finalizers != nil && slices.Contains(tt.claim.Finalizers, b) && !slices.Contains(set.Finalizers, b); (cached.Step == pvc.NeedsLive) != loses {
				t.Errorf("by a cached namespace: step %d", cached.Step)
			}
		})
	}
}

// Where no built-in controller runs, an earlier version wrote the condition Unused.
func TestDecideRemovesTheConditionUnused(t *testing.T) {
	got := pvc.Decide(pvc.View{Claim: claim("data", unused), Pods: index(), Mode: pvc.Barrier, Settings: pvc.Settings{Alone: true}})
	if drop, ok := got.Write.(pvc.DropUnused); got.Step != pvc.Write || !ok || drop.PVC.UID != "uid-data" || drop.PVC.ResourceVersion != "7" {
		t.Errorf("got %+v", got)
	}
}

func unused(c *corev1.PersistentVolumeClaim) {
	c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue}}
}

func TestModeOf(t *testing.T) {
	settings := pvc.Settings{Mode: pvc.Barrier, Exempt: []string{"kube-system"}}
	hold := map[string]string{pvc.ModeKey: "hold"}
	own := func(c *corev1.PersistentVolumeClaim) { controlledBy("Pod", "x")(c) }
	tests := []struct {
		name   string
		claim  *corev1.PersistentVolumeClaim
		labels map[string]string
		want   pvc.Mode
	}{
		{"the cluster's", claim("data"), nil, pvc.Barrier},
		{"the namespace's", claim("data"), hold, pvc.Hold},
		{"its own", claim("data", annotated(pvc.ModeKey, "observe")), hold, pvc.Observe},
		{"a slip of the pen", claim("data", annotated(pvc.ModeKey, "of")), hold, pvc.Hold},
		{"ephemeral", claim("owner-data", own), hold, pvc.Off},
		{"a pod's to take along, and not made for it", claim("data-owner", own), hold, pvc.Hold},
		{"exempt", claim("data", annotated(pvc.ModeKey, "strict"), func(c *corev1.PersistentVolumeClaim) { c.Namespace = "kube-system" }), hold, pvc.Off},
	}
	for _, tt := range tests {
		if got := settings.ModeOf(tt.claim, tt.labels); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	for m := pvc.Off; m <= pvc.Strict; m++ {
		if got, ok := pvc.ParseMode(m.String()); !ok || got != m {
			t.Errorf("%s is read as %s", m, got)
		}
	}
}

func TestTheReasonNamesTheUsers(t *testing.T) {
	var pods []*corev1.Pod
	for _, name := range []string{"j", "i", "h", "g", "f", "e", "d", "c", "b", "a"} {
		pods = append(pods, pod(name, []string{"data"}))
	}
	got := pvc.Decide(pvc.View{Claim: claim("data", dying), Pods: index(pods...)}).Because.Sentence
	const want = "is being deleted, and stays until pod a on node n1, pod b on node n1, pod c on node n1, pod d on node n1, " +
		"pod e on node n1, pod f on node n1, pod g on node n1, pod h on node n1 and 2 more end"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
