package pvc_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestWhyTellsOfCompletedPods(t *testing.T) {
	free := pvc.Choice{CompletedFree: true}
	for _, tt := range []struct {
		name       string
		finalizers []string
		settings   pvc.Settings
		choice     pvc.Choice
		want       string
	}{
		{"nothing is chosen", []string{p, b}, pvc.Settings{}, pvc.Choice{}, "as long as it is there"},
		{"the built-in counts it", []string{p, b}, pvc.Settings{}, free, "for kubernetes.io/pvc-protection it does, unless Lockstep runs in place of the built-in controller"},
		{"P is ours", []string{p, b}, pvc.Settings{Alone: true}, free, "or until its volume has left node n1, 30s after"},
		{"P is gone", []string{b}, pvc.Settings{}, free, "or until its volume has left node n1, 30s after"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pods := []*corev1.Pod{pod("job", []string{"c"}, completed)}
			c := caseOf(claim("c", dying, finalizers(tt.finalizers...)), pvc.Barrier, pods)
			c.Choice, c.Settings = tt.choice, tt.settings
			if got := pvc.Why(c).Holders[0].Why; !strings.Contains(got, tt.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestWhyTellsOfAVolumeThatHolds(t *testing.T) {
	c := caseOf(claim("c", dying, finalizers(b)), pvc.Barrier, nil)
	c.Attached = []string{"n1"}
	if got := pvc.Why(c); !strings.Contains(got.Summary, "it should go any moment") || !strings.Contains(got.Blockers[0].Remedy, "outlives the claim") {
		t.Errorf("nothing is chosen: %q, %+v", got.Summary, got.Blockers)
	}
	c.Choice.AttachedHolds = true
	if got := pvc.Why(c); !strings.Contains(got.Summary, "stays until its volume is detached from n1") || !strings.Contains(got.Blockers[0].Remedy, "the claim stays") {
		t.Errorf("it holds: %q, %+v", got.Summary, got.Blockers)
	}
	do := pvc.Why(c).Actions
	if len(do) != 1 || !strings.Contains(do[0].Do, "until volume pv-c is detached from n1") || do[0].Command != "kubectl annotate pvc c -n ns --overwrite protection.lockstep.dev/attached-volume=free" {
		t.Errorf("what frees it: %+v", do)
	}
	c.Claim.Finalizers = []string{p, b}
	if do := pvc.Why(c).Actions; len(do) != 1 || !strings.Contains(do[0].Do, "kube-controller-manager") {
		t.Errorf("the other finalizer comes first: %+v", do)
	}
}
