package integration

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// older starts an API server without mutating policies, as before 1.36.
func older(t *testing.T) *cluster {
	t.Helper()
	return newClusterWith(t, map[string]string{
		"disable-admission-plugins": "MutatingAdmissionPolicy,StorageObjectInUseProtection",
		"runtime-config": "admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false," +
			"admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false",
	})
}

// Without mutating policies the controller adds the barrier.
func TestTheControllerProtectsWithoutMutatingPolicies(t *testing.T) {
	c := older(t)
	c.create(namespaced("prod"))
	r := c.replica(func(o *operator.Options) {
		o.Namespace, o.Controllers, o.Webhooks = standaloneName, []string{operator.Protection}, false
	})
	form := func(o *install.Options) { o.ProtectOnly = true }
	if out := c.install(form); strings.Contains(out, "mutatingadmissionpolicy") || !strings.Contains(out, "1.36") {
		t.Fatalf("got:\n%s", out)
	}
	if missing, err := pvccache.NewPolicies(c, false, false).Missing(t.Context()); err != nil || len(missing) > 0 {
		t.Errorf("of what is installed %q is missing: %v", missing, err)
	}
	r.start().untilReady()
	claim := c.claimIn("prod", "data")
	c.until("the controller adds the barrier", func() bool {
		c.read(claim, "prod", "data")
		return slices.Contains(claim.Finalizers, pvc.BarrierFinalizer)
	})
	r.shut()
	if again := c.install(form); !strings.Contains(again, "nothing had to be changed") {
		t.Errorf("the second run changed something:\n%s", again)
	}
	if out, err := c.uninstall(nil); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.bare()
}

func newVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}},
	}}
}
