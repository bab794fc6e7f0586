package pvc_test

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestRemoval(t *testing.T) {
	const theirs = "example.com/theirs"
	for name, tt := range map[string]struct {
		removal     pvc.Removal
		terminating bool
		stays       []string // of finalizers, annotations and labels
	}{
		"beside the built-in controller": {pvc.Removal{}, false, []string{p, theirs, theirs}},
		"alone":                          {pvc.Removal{Alone: true}, false, []string{theirs, theirs}},
		"terminating":                    {pvc.Removal{Alone: true}, true, []string{p, theirs, b, theirs, pvc.UsersAnnotation}},
	} {
		meta := metav1.ObjectMeta{Finalizers: []string{p, theirs, b}, Labels: map[string]string{pvc.ModeKey: "hold"}, Annotations: map[string]string{
			pvc.HoldersAnnotation: "x", pvc.UsersAnnotation: "a=1", pvc.HoldAnnotation: "mine", pvc.ModeKey: "hold", theirs: "y",
		}}
		if tt.terminating {
			meta.DeletionTimestamp = &metav1.Time{Time: noon}
		}
		took := tt.removal.Strip(&meta)
		got := slices.Concat(meta.Finalizers, slices.Sorted(maps.Keys(meta.Annotations)), slices.Sorted(maps.Keys(meta.Labels)))
		if !took || !slices.Equal(got, tt.stays) {
			t.Errorf("%s: %t, got %q, want %q", name, took, got, tt.stays)
		}
		if tt.removal.Strip(&meta) {
			t.Errorf("%s: the second time it took something", name)
		}
	}
}
