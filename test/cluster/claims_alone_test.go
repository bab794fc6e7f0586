package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const volumeProtection = "kubernetes.io/pv-protection"

const aloneConfiguration = `
apiVersion: config.lws.x-k8s.io/v1alpha1
kind: Configuration
protection:
  alone: true
`

// withoutBuiltIn switches off what Kubernetes has built in to protect claims and
// volumes, and has the operator take its place until the test ends.
func withoutBuiltIn(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "alone.yaml")
	if err := os.WriteFile(file, []byte(aloneConfiguration), 0o600); err != nil {
		t.Fatal(err)
	}
	become := func(plugins, controllers string) error {
		return errors.Join(
			bed.operator.kill(),
			bed.plane.restart(apiServer, "--disable-admission", plugins),
			bed.plane.restart(controllerManager, "--kcm-controllers", controllers),
			bed.plane.restart(scheduler))
	}
	t.Cleanup(func() {
		if err := errors.Join(become("", "*"), bed.operator.start()); err != nil {
			t.Error(err)
		}
	})
	if err := become("StorageObjectInUseProtection", "*,-persistentvolumeclaim-protection-controller,-persistentvolume-protection-controller"); err != nil {
		t.Fatal(err)
	}
	bare := (&scene{T: t, namespace: metav1.NamespaceDefault}).newClaim("bare")
	if err := bed.client.Create(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	bed.hasSet(bare.Namespace)
	if slices.Contains(bare.Finalizers, podProtection) {
		t.Fatalf("invalid run: without us a claim has %v", bare.Finalizers)
	}
	if err := errors.Join(bed.operator.start("--config", file), bed.client.Delete(t.Context(), bare)); err != nil {
		t.Fatal(err)
	}
}

// TestClaimsInPlaceOfTheBuiltIn shows every behaviour with what is built in switched
// off: ours gives both finalizers and takes them.
func TestClaimsInPlaceOfTheBuiltIn(t *testing.T) {
	withoutBuiltIn(t)
	t.Run("claims", showBehaviours)
	t.Run("volumes", func(t *testing.T) {
		aside(t)
		s := newScene(t)
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
		s.awaitVolume(volume, foreign, volumeProtection)
		claim := s.newClaim("data")
		claim.Spec.VolumeName = volume.Name
		s.create(claim)
		s.eventually("the volume is bound", func() error {
			return errors.Join(s.client.Get(t.Context(), client.ObjectKeyFromObject(volume), volume), lacking("phase", corev1.VolumeBound, volume.Status.Phase))
		})
		s.remove(volume)
		s.awaitDressed("data")
		s.remove(s.claim("witness"))
		s.awaitVolume(volume, foreign, volumeProtection)
		s.remove(claim)
		s.awaitGone(claim)
		s.awaitVolume(volume, foreign)
		s.let(volume)
	})
}

// awaitVolume waits until a volume has these finalizers.
func (s *scene) awaitVolume(volume *corev1.PersistentVolume, want ...string) {
	s.Helper()
	s.eventually(fmt.Sprintf("the volume has %v", want), func() error {
		if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(volume), volume); err != nil {
			return err
		}
		if !slices.Equal(volume.Finalizers, want) {
			return fmt.Errorf("it has %v", volume.Finalizers)
		}
		return nil
	})
}
