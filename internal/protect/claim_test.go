package protect_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/protect"
)

var cmpEmpty = cmpopts.EquateEmpty()

func TestDecide(t *testing.T) {
	beside, alone := protect.Settings{}, protect.Settings{Alone: true}
	used := index(pod("web", []string{"data"}))
	tests := []struct {
		name     string
		claim    *corev1.PersistentVolumeClaim
		pods     *protect.Index
		mode     protect.Mode
		settings protect.Settings
		step     protect.Step
		dressed  []string
	}{
		{"dressed", claim("data"), index(), protect.Barrier, beside, protect.Leave, nil},
		{"without B", claim("data", finalizers(p)), used, protect.Barrier, beside, protect.Dress, []string{p, b}},
		{"without B, mode observe", claim("data", finalizers(p)), used, protect.Observe, beside, protect.Leave, nil},
		{"B, mode off", claim("data"), used, protect.Off, beside, protect.Dress, []string{p}},
		{"B, mode off, alone and without P", claim("data", finalizers(b)), used, protect.Off, alone, protect.Dress, []string{p}},
		{"without any, beside", claim("data", finalizers()), index(), protect.Hold, beside, protect.Dress, []string{b}},
		{"without any, alone", claim("data", finalizers("x/1")), index(), protect.Barrier, alone, protect.Dress, []string{"x/1", p, b}},
		{"without any, alone and off", claim("data", finalizers()), index(), protect.Off, alone, protect.Dress, []string{p}},
		{"terminating and bare", claim("data", dying, finalizers("x/1")), index(), protect.Barrier, alone, protect.Leave, nil},
		{"terminating, without B", claim("data", dying, finalizers(p)), index(), protect.Barrier, beside, protect.AwaitPods, nil},
		{"terminating, used", claim("data", dying), used, protect.Barrier, beside, protect.Keep, nil},
		{"terminating, P is the built-in's", claim("data", dying), index(), protect.Barrier, beside, protect.AwaitPods, nil},
		{"terminating, P is ours", claim("data", dying), index(), protect.Barrier, alone, protect.Look, nil},
		{"terminating, P went", claim("data", dying, finalizers(b)), index(), protect.Barrier, beside, protect.Look, nil},
		{"terminating, P went, mode off since", claim("data", dying, finalizers(b)), index(), protect.Off, beside, protect.Look, nil},
		{"terminating, P went, used", claim("data", dying, finalizers(b)), used, protect.Barrier, beside, protect.Keep, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			view := protect.View{Claim: tt.claim, Pods: tt.pods, Mode: tt.mode, Settings: tt.settings}
			cached := protect.Decide(view)
			view.NamespaceLive = true
			got := protect.Decide(view)
			if got.Step != tt.step {
				t.Errorf("step: got %d, want %d", got.Step, tt.step)
			}
			if diff := cmp.Diff(tt.dressed, got.Finalizers, cmpEmpty); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
			if loses := got.Step == protect.Dress && slices.Contains(tt.claim.Finalizers, b) && !slices.Contains(got.Finalizers, b); (cached.Step == protect.AskNamespace) != loses {
				t.Errorf("by a cached namespace: step %d", cached.Step)
			}
		})
	}
}

func TestModeOf(t *testing.T) {
	settings := protect.Settings{Mode: protect.Barrier, Exempt: []string{"kube-system"}}
	hold := map[string]string{protect.ModeKey: "hold"}
	own := func(c *corev1.PersistentVolumeClaim) { controlledBy("Pod", "x")(c) }
	tests := []struct {
		name   string
		claim  *corev1.PersistentVolumeClaim
		labels map[string]string
		want   protect.Mode
	}{
		{"the cluster's", claim("data"), nil, protect.Barrier},
		{"the namespace's", claim("data"), hold, protect.Hold},
		{"its own", claim("data", annotated(protect.ModeKey, "observe")), hold, protect.Observe},
		{"a slip of the pen", claim("data", annotated(protect.ModeKey, "of")), hold, protect.Hold},
		{"ephemeral", claim("owner-data", own), hold, protect.Off},
		{"a pod's to take along, and not made for it", claim("data-owner", own), hold, protect.Hold},
		{"exempt", claim("data", annotated(protect.ModeKey, "strict"), func(c *corev1.PersistentVolumeClaim) { c.Namespace = "kube-system" }), hold, protect.Off},
	}
	for _, tt := range tests {
		if got := settings.ModeOf(tt.claim, tt.labels); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	for m := protect.Off; m <= protect.Strict; m++ {
		if got, ok := protect.ParseMode(m.String()); !ok || got != m {
			t.Errorf("%s is read as %s", m, got)
		}
	}
}

func TestTheReasonNamesTheUsers(t *testing.T) {
	var pods []*corev1.Pod
	for _, name := range []string{"j", "i", "h", "g", "f", "e", "d", "c", "b", "a"} {
		pods = append(pods, pod(name, []string{"data"}))
	}
	got := protect.Decide(protect.View{Claim: claim("data", dying), Pods: index(pods...)}).Because.Sentence
	const want = "is being deleted, and stays until pod a on node n1, pod b on node n1, pod c on node n1, pod d on node n1, " +
		"pod e on node n1, pod f on node n1, pod g on node n1, pod h on node n1 and 2 more let go"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
