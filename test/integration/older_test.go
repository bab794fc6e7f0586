package integration

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/controller"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/webhook"
)

// older is an API server of today that serves no mutating policies, as those before
// 1.36 do not. One of these cannot be had here.
func older(t *testing.T) *cluster {
	t.Helper()
	return newClusterWith(t, map[string]string{
		"disable-admission-plugins": "MutatingAdmissionPolicy,StorageObjectInUseProtection",
		"runtime-config": "admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false," +
			"admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false",
	})
}

func TestClaimsAreBornProtectedWithoutMutatingPolicies(t *testing.T) {
	c := older(t)
	for name, mode := range map[string]string{"prod": "", "lax": "off"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if mode != "" {
			ns.Labels = map[string]string{pvc.ModeKey: mode}
		}
		c.create(ns)
	}
	r := c.replica(func(o *operator.Options) {
		o.Namespace, o.Controllers, o.Webhooks = standaloneName, []string{controller.Protection}, false
	})
	form := func(o *install.Options) {
		configured("protection: {alone: true}")(o)
		o.ProtectOnly, o.WebhookURL = true, r.webhookURL()
	}
	if out := c.install(form); !strings.Contains(out, webhook.ProtectionConfiguration+" created") || strings.Contains(out, "mutatingadmissionpolicy") {
		t.Fatalf("got:\n%s", out)
	}
	guards := pvccache.NewGuards(c, true, false)
	if missing, err := guards.Missing(t.Context()); err != nil || len(missing) > 0 {
		t.Errorf("of what is installed %q is missed: %v", missing, err)
	}
	c.born("prod") // nobody answers yet, and nobody waits
	r.start().untilReady()
	c.gives("prod", pvc.PodsFinalizer, pvc.BarrierFinalizer)
	c.gives("lax", pvc.PodsFinalizer)
	c.gives("kube-system", pvc.PodsFinalizer)

	if got := c.born("lax", func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations = map[string]string{pvc.ModeKey: "hold"}
		claim.Finalizers = []string{"example.com/theirs"}
	}); !sameSet(got, []string{"example.com/theirs", pvc.PodsFinalizer, pvc.BarrierFinalizer}) {
		t.Errorf("a claim that chooses to be protected gets %q", got)
	}
	if got := c.born("prod", func(claim *corev1.PersistentVolumeClaim) {
		claim.Name = "p-data"
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: new(true)}}
	}); !slices.Equal(got, []string{pvc.PodsFinalizer}) {
		t.Errorf("a claim that goes with a pod gets %q", got)
	}
	volume := newVolume("v")
	c.must(c.Create(t.Context(), volume, client.DryRunAll))
	if !slices.Equal(volume.Finalizers, []string{pvc.VolumeFinalizer}) {
		t.Errorf("a volume gets %q", volume.Finalizers)
	}
	r.shut()
	if again := c.install(form); !strings.Contains(again, "nothing had to be changed") {
		t.Errorf("the second run changed something:\n%s", again)
	}
	if out, err := c.uninstall(nil); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.bare()
}

// born are the finalizers that a new claim gets.
func (c *cluster) born(namespace string, change ...func(*corev1.PersistentVolumeClaim)) []string {
	c.t.Helper()
	claim := newClaim(namespace, "dry")
	for _, change := range change {
		change(claim)
	}
	c.must(c.Create(c.t.Context(), claim, client.DryRunAll))
	return claim.Finalizers
}

func newVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}},
	}}
}
