package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const volumeProtection = "kubernetes.io/pv-protection"

const aloneConfiguration = `
apiVersion: config.lws.x-k8s.io/v1alpha1
kind: Configuration
protection:
  alone: true
`

// withoutBuiltIn turns off the built-in protection of PVCs and volumes until the test ends. The
// operator takes its place.
func withoutBuiltIn(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "alone.yaml")
	if err := os.WriteFile(file, []byte(aloneConfiguration), 0o600); err != nil {
		t.Fatal(err)
	}
	become := func(plugins, controllers string) error {
		return errors.Join(
			bed.operator.Kill(),
			bed.plane.Restart(apiServer, "--disable-admission", plugins),
			bed.plane.Restart(controllerManager, "--kcm-controllers", controllers),
			bed.plane.Restart(scheduler))
	}
	t.Cleanup(func() {
		if err := errors.Join(become("", "*"), bed.operator.Start()); err != nil {
			t.Error(err)
		}
	})
	if err := become("StorageObjectInUseProtection", "*,-persistentvolumeclaim-protection-controller,-persistentvolume-protection-controller"); err != nil {
		t.Fatal(err)
	}
	bare := (&scene{namespace: metav1.NamespaceDefault}).newClaim("bare")
	if err := bed.client.Create(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	bed.hasSet(bare.Namespace)
	if slices.Contains(bare.Finalizers, podProtection) {
		t.Fatalf("invalid run: without us a claim has %v", bare.Finalizers)
	}
	if err := errors.Join(bed.operator.Start("--config", file), bed.client.Delete(t.Context(), bare)); err != nil {
		t.Fatal(err)
	}
}

// TestClaimsInPlaceOfTheBuiltIn shows every behaviour without the built-in controller. The operator
// adds and removes both finalizers.
func TestClaimsInPlaceOfTheBuiltIn(t *testing.T) {
	withoutBuiltIn(t)
	t.Run("claims", showBehaviours)
	t.Run("volumes", func(t *testing.T) {
		s := asideScene(t)
		bed.hasSet("") // volumes are in no namespace
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Finalizers: []string{foreign}},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
				ClaimRef:                      &corev1.ObjectReference{Namespace: s.namespace, Name: "data"},
			},
		}
		s.create(volume)
		s.awaitFinalizers(volume, foreign, volumeProtection)
		claim := s.newClaim("data")
		claim.Spec.VolumeName = volume.Name
		s.create(claim)
		s.eventually("the volume is bound", func() error {
			return errors.Join(s.client.Get(t.Context(), keyOf(volume), volume), lacking("phase", corev1.VolumeBound, volume.Status.Phase))
		})
		s.remove(volume)
		s.awaitProtected("data")
		s.outlastClaim()
		s.awaitFinalizers(volume, foreign, volumeProtection)
		s.remove(claim)
		s.awaitGone(claim)
		s.awaitFinalizers(volume, foreign)
		s.let(volume)
	})
}
