package pvc_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestRemoval(t *testing.T) {
	const theirs = "example.com/theirs"
	all, label := []string{p, theirs, b}, map[string]string{pvc.ModeKey: "hold"}
	annotations := map[string]string{pvc.HoldersAnnotation: "x", pvc.UsersAnnotation: "a=1", pvc.HoldAnnotation: "mine", pvc.ModeKey: "hold", theirs: "y"}
	for name, tt := range map[string]struct {
		removal pvc.Removal
		meta    metav1.ObjectMeta
		want    pvc.Removed
	}{
		"beside the built-in controller": {
			pvc.Removal{}, metav1.ObjectMeta{Finalizers: all, Annotations: annotations, Labels: label},
			pvc.Removed{Takes: true, Finalizers: []string{p, theirs}, Annotations: []string{pvc.HoldAnnotation, pvc.HoldersAnnotation, pvc.ModeKey, pvc.UsersAnnotation}, Labels: []string{pvc.ModeKey}},
		},
		"alone": {pvc.Removal{Alone: true}, metav1.ObjectMeta{Finalizers: all}, pvc.Removed{Takes: true, Finalizers: []string{theirs}}},
		"choices are kept": {
			pvc.Removal{KeepChoices: true}, metav1.ObjectMeta{Annotations: annotations, Labels: label},
			pvc.Removed{Annotations: []string{pvc.HoldersAnnotation, pvc.UsersAnnotation}},
		},
		"terminating": {
			pvc.Removal{Alone: true}, metav1.ObjectMeta{Finalizers: all, Annotations: annotations, DeletionTimestamp: &metav1.Time{Time: noon}},
			pvc.Removed{Finalizers: all, Annotations: []string{pvc.HoldAnnotation, pvc.HoldersAnnotation, pvc.ModeKey}},
		},
		"nothing of ours": {
			pvc.Removal{}, metav1.ObjectMeta{Finalizers: []string{theirs}, Annotations: map[string]string{theirs: "y"}}, pvc.Removed{Finalizers: []string{theirs}},
		},
	} {
		if diff := cmp.Diff(tt.want, tt.removal.Of(&tt.meta)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
