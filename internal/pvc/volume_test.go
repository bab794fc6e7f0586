package pvc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAVolumeGoesOnceItIsNotBound(t *testing.T) {
	const other = "example.com/x"
	tests := []struct {
		name    string
		going   bool
		phase   corev1.PersistentVolumePhase
		have    []string
		want    []string
		nothing bool
	}{
		{"from before", false, corev1.VolumeBound, []string{other}, []string{other, VolumeFinalizer}, false},
		{"living", false, corev1.VolumeAvailable, []string{VolumeFinalizer}, nil, true},
		{"bound", true, corev1.VolumeBound, []string{VolumeFinalizer}, nil, true},
		{"released", true, corev1.VolumeReleased, []string{VolumeFinalizer, other}, []string{other}, false},
		{"never bound", true, "", []string{VolumeFinalizer}, []string{}, false},
		{"too late to dress", true, corev1.VolumeBound, []string{other}, nil, true},
	}
	for _, tt := range tests {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "1", ResourceVersion: "7", Finalizers: tt.have}}
		volume.Status.Phase = tt.phase
		if tt.going {
			volume.DeletionTimestamp = &metav1.Time{}
		}
		a, ok := DecideVolume(volume)
		if ok == tt.nothing || !cmp.Equal(a.Finalizers, tt.want) {
			t.Errorf("%s: got %v, %t", tt.name, a.Finalizers, ok)
		}
		if ok && (a.Object.UID != "1" || a.Object.ResourceVersion != "7") {
			t.Errorf("%s: onto %+v", tt.name, a.Object)
		}
	}
}
