package pvcfinalizer

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestVolumesAreDressedAndLetGo(t *testing.T) {
	named := func(name string, phase corev1.PersistentVolumePhase, finalizers ...string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Finalizers: finalizers},
			Status:     corev1.PersistentVolumeStatus{Phase: phase},
		}
	}
	going := func(v *corev1.PersistentVolume) *corev1.PersistentVolume {
		v.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time}
		return v
	}
	w := newWorld(t, alone,
		named("living", corev1.VolumeBound, other),
		going(named("bound", corev1.VolumeBound, other, pvc.VolumeFinalizer)),
		going(named("released", corev1.VolumeReleased, pvc.VolumeFinalizer, other)))
	volumes := &Volumes{Cached: w.cached, Actor: w.act, Narrate: w.narrate}
	for name, want := range map[string][]string{
		"living":   {other, pvc.VolumeFinalizer},
		"bound":    {other, pvc.VolumeFinalizer},
		"released": {other},
		"missing":  nil,
	} {
		key := types.NamespacedName{Name: name}
		if _, err := volumes.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		volume := &corev1.PersistentVolume{}
		if err := w.Get(t.Context(), key, volume); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, slices.Clone(volume.Finalizers)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}
