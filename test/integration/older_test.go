package integration

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

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

// Without mutating policies the controller adds the finalizers. It needs neither the CRD of sets nor
// rights beyond those of its installation.
func TestTheControllerProtectsWithoutMutatingPolicies(t *testing.T) {
	c := older(t)
	form := func(o *install.Options) {
		configured("protection: {alone: true}")(o)
		o.ProtectOnly = true
	}
	if out := c.install(form); strings.Contains(out, "mutatingadmissionpolicy") || !strings.Contains(out, "1.36") {
		t.Fatalf("got:\n%s", out)
	}
	if missing, err := pvccache.NewPolicies(c, true, false).Missing(t.Context()); err != nil || len(missing) > 0 {
		t.Errorf("of what is installed %q is missing: %v", missing, err)
	}
	const user = "system:serviceaccount:" + standaloneName + ":lockstep-controller-manager"
	c.until("the rights of the operator are known", func() bool {
		return c.may(user, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "persistentvolumeclaims"}) &&
			c.may(user, authorizationv1.ResourceAttributes{Namespace: standaloneName, Verb: "create", Group: "coordination.k8s.io", Resource: "leases"})
	})
	before := c.claimIn("default", "before")
	r := c.replica(func(o *operator.Options) {
		o.REST = rest.CopyConfig(o.REST)
		o.REST.Impersonate.UserName = user
		o.Namespace, o.Controllers, o.Webhooks = standaloneName, []string{operator.Protection}, false
		o.Config.Protection.Alone = true
		o.Config.LeaderElection.ResourceName = "protection.lockstep.dev"
	}).start().untilReady()
	c.create(namespaced("prod"))
	for _, claim := range []*corev1.PersistentVolumeClaim{before, c.claimIn("prod", "data")} {
		c.until("the controller adds the finalizers", func() bool {
			c.read(claim, claim.Namespace, claim.Name)
			return sameSet(claim.Finalizers, []string{pvc.PodsFinalizer, pvc.BarrierFinalizer})
		})
	}
	c.must(c.Delete(t.Context(), before))
	c.awaitGone(before)
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
