package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const (
	configHeader = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"
	ourLabels    = "app.kubernetes.io/name=lockstep,app.kubernetes.io/component=protection"
)

func configured(text string) func(*install.Options) {
	return func(o *install.Options) { o.Config = []byte(configHeader + text) }
}

// protection returns the names of the installed objects of protection.
func (c *cluster) protection() (names []string) {
	c.t.Helper()
	selector := &metav1.ListOptions{LabelSelector: ourLabels}
	for _, list := range []client.ObjectList{
		&admissionv1.MutatingAdmissionPolicyList{}, &admissionv1.MutatingAdmissionPolicyBindingList{},
		&admissionv1.ValidatingAdmissionPolicyList{}, &admissionv1.ValidatingAdmissionPolicyBindingList{},
		&admissionv1.MutatingWebhookConfigurationList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{},
	} {
		if err := c.List(c.t.Context(), list, &client.ListOptions{Raw: selector}); !meta.IsNoMatchError(err) {
			c.must(client.IgnoreNotFound(err))
		}
		c.must(eachItem(list, func(o client.Object) { names = append(names, fmt.Sprintf("%T %s", o, o.GetName())) }))
	}
	return names
}

// eachItem visits the items of a list.
func eachItem(list client.ObjectList, visit func(client.Object)) error {
	return meta.EachListItem(list, func(o runtime.Object) error {
		visit(o.(client.Object))
		return nil
	})
}

// claimIn creates a PVC.
func (c *cluster) claimIn(namespace, name string) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	claim := newClaim(namespace, name)
	c.create(claim)
	return claim
}

// awaitFinalizers waits until new PVCs of a namespace get exactly these finalizers.
func (c *cluster) awaitFinalizers(namespace string, want ...string) {
	c.t.Helper()
	slices.Sort(want)
	c.eventually(fmt.Sprintf("PVCs in %q get %q", namespace, want), func() error {
		claim := newClaim(namespace, "dry")
		err := c.Create(c.t.Context(), claim, client.DryRunAll)
		return errors.Join(err, drill.Lacking("finalizers", fmt.Sprint(want), fmt.Sprint(slices.Sorted(slices.Values(claim.Finalizers)))))
	})
}

// mustBeClean checks that no object has a finalizer, label or annotation of Lockstep.
func (c *cluster) mustBeClean() {
	c.t.Helper()
	left := c.protection()
	expect.That(c.t, len(left) == 0, "left: %q", left)
	for _, list := range []client.ObjectList{&corev1.PersistentVolumeClaimList{}, &corev1.NamespaceList{}, &corev1.PodList{}} {
		c.must(c.List(c.t.Context(), list))
		c.must(eachItem(list, func(o client.Object) {
			text := fmt.Sprint(o.GetAnnotations(), o.GetLabels(), o.GetFinalizers())
			expect.That(c.t, !strings.Contains(text, "lockstep.dev/"), "%T %s has %s", o, o.GetName(), text)
			if pod, ok := o.(*corev1.Pod); ok && len(pod.Spec.SchedulingGates) > 0 {
				c.t.Errorf("pod %s waits for %v", pod.Name, pod.Spec.SchedulingGates)
			}
		}))
	}
}

// annotateAll sets annotations of every kind on a PVC and on a namespace.
func (c *cluster) annotateAll(claim *corev1.PersistentVolumeClaim, namespace string) {
	c.t.Helper()
	c.read(claim, claim.Namespace, claim.Name)
	claim.Annotations = map[string]string{
		pvc.HoldersAnnotation: "StatefulSet/db", pvc.VerifiedAnnotation: "2026-01-01T00:00:00Z", pvc.HoldAnnotation: "mine",
		pvc.UsersAnnotation: "a=1", pvc.ModeKey: "hold", "mine": "stays",
	}
	c.must(c.Update(c.t.Context(), claim))
	ns := &corev1.Namespace{}
	c.read(ns, "", namespace)
	metav1.SetMetaDataLabel(&ns.ObjectMeta, pvc.ModeKey, "hold")
	metav1.SetMetaDataAnnotation(&ns.ObjectMeta, pvc.HeldClaimsAnnotation, "1")
	c.must(c.Update(c.t.Context(), ns))
}

// cutAt cancels a context after some lines of output.
type cutAt struct {
	bytes.Buffer
	lines  int
	cancel context.CancelFunc
}

func (w *cutAt) Write(text []byte) (int, error) {
	if w.lines--; w.lines < 0 {
		w.cancel()
	}
	return w.Buffer.Write(text)
}

// Without the built-in controller, uninstall removes the finalizers of that controller as well. A second
// uninstall must still do so after the first one was interrupted.
func TestInterruptedUninstallIsResumed(t *testing.T) {
	c := newClusterWith(t, map[string]string{"disable-admission-plugins": "StorageObjectInUseProtection"})
	go c.finalizeNamespace(t.Context())
	rounds := 0
	for cut := 3; ; cut += 6 {
		rounds++
		c.install(func(o *install.Options) {
			configured("protection: {alone: true}")(o)
			o.ProtectOnly = true
		})
		c.awaitFinalizers("default", pvc.PodsFinalizer, pvc.BarrierFinalizer)
		claim := c.claimIn("default", fmt.Sprintf("claim-%d", cut))
		c.annotateAll(claim, "default")
		gated := podWith("default", claim.Name, claim.Name)
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: pvc.UseGate}}
		c.create(gated)
		volume := newVolume(fmt.Sprintf("volume-%d", cut))
		c.until("a volume gets its finalizer", func() bool {
			dry := volume.DeepCopy()
			c.must(c.Create(t.Context(), dry, client.DryRunAll))
			return slices.Equal(dry.Finalizers, []string{"kubernetes.io/pv-protection"})
		})
		c.create(volume)
		ctx, cancel := context.WithCancel(t.Context())
		out := &cutAt{lines: cut, cancel: cancel}
		finished := install.Uninstall(ctx, install.Options{REST: c.cfg, WebhookURL: someURL, Timeout: patience, Out: out})
		cancel()
		text, err := c.act(install.Uninstall, nil)
		expect.Must(t, err == nil, "interrupted after %d lines:\n%s\nresumed: %v\n%s", cut, out, err, text)
		c.mustBeClean()
		c.read(claim, "default", claim.Name)
		expect.Emptyf(t, claim.Finalizers, "interrupted after %d lines: the PVC keeps", cut)
		c.read(volume, "", volume.Name)
		expect.Emptyf(t, volume.Finalizers, "interrupted after %d lines: the volume keeps", cut)
		if finished == nil {
			break
		}
	}
	expect.That(t, rounds >= 4, "it was interrupted %d times", rounds-1)
}

func TestNewConfigurationReplacesTheFormerOne(t *testing.T) {
	c := newClusterWith(t, map[string]string{"disable-admission-plugins": "StorageObjectInUseProtection"})
	c.create(namespaced("prod"))
	c.create(inMode("eager", "hold"))
	c.create(inMode("lax", "off"))
	c.install(nil)
	byDefault := c.protection()
	missing, err := pvccache.MissingPolicies(t.Context(), c, false, false)
	expect.That(t, err == nil && len(missing) == 0, "the installed policies lack %q: %v", missing, err)
	for _, namespace := range []string{"prod", "eager"} {
		c.awaitFinalizers(namespace, pvc.BarrierFinalizer)
	}
	c.awaitFinalizers("lax")
	c.awaitFinalizers("kube-system")

	c.install(configured("protection: {alone: true, exemptNamespaces: [prod]}"))
	c.awaitFinalizers("prod", pvc.PodsFinalizer)
	c.awaitFinalizers("lax", pvc.PodsFinalizer)
	c.awaitFinalizers("kube-system", pvc.PodsFinalizer, pvc.BarrierFinalizer)
	alone := c.protection()
	expect.Equalf(t, len(byDefault)+4, len(alone), "got %q", alone)

	c.install(configured("protection: {mode: Observe}"))
	c.installAgain(configured("protection: {mode: Observe}"))
	c.awaitFinalizers("prod")
	c.awaitFinalizers("lax")
	c.awaitFinalizers("eager", pvc.BarrierFinalizer)
	c.until("a PVC that asks for more protection than its cluster gets it", func() bool {
		chosen := newClaim("prod", "chosen")
		chosen.Annotations = map[string]string{pvc.ModeKey: "barrier"}
		c.must(c.Create(t.Context(), chosen, client.DryRunAll))
		return slices.Contains(chosen.Finalizers, pvc.BarrierFinalizer)
	})
	expect.Equalf(t, byDefault, c.protection(), "stale objects")

	claim := c.claimIn("eager", "claim")
	c.annotateAll(claim, "eager")
	c.install(func(o *install.Options) { o.NoProtection = true })
	expect.Emptyf(t, c.protection(), "switched off")
	c.awaitFinalizers("eager")
	c.read(claim, "eager", "claim")
	expect.That(t, len(claim.Finalizers) == 0 && len(claim.Annotations) == 1,
		"switched off, a PVC has %+v", claim.ObjectMeta)
	c.mutating() // the webhooks of LeaderWorkerSets stay
}

// An install without --config goes back to the defaults. A namespace that install did not create stays.
func TestInstallWithoutConfigResetsTheConfiguration(t *testing.T) {
	c := newCluster(t)
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemName, Labels: map[string]string{"mine": "yes"}}})
	kinds := func() []v1alpha1.WorkloadKind {
		stored := &corev1.ConfigMap{}
		c.read(stored, v1alpha1.InstalledNamespace, v1alpha1.InstalledName)
		config := expect.Value(operator.ParseConfig([]byte(stored.Data[v1alpha1.InstalledKey])))(c.t)
		return config.Protection.Kinds
	}
	c.install(func(o *install.Options) {
		configured("protection: {kinds: [{apiVersion: example.com/v1, kind: Shard, podTemplates: [spec.template]}]}")(o)
		withImage(o)
	})
	got := kinds()
	expect.Must(t, len(got) == 1, "got %v", got)
	c.install(withImage)
	expect.Emptyf(t, kinds(), "what the configuration keeps")
	c.installAgain(withImage)
	c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemName, Name: "mine"}})
	c.uninstall(nil)
	ns := &corev1.Namespace{}
	c.read(ns, "", systemName)
	expect.That(t, ns.DeletionTimestamp == nil && ns.Labels["mine"] == "yes", "got %+v", ns.ObjectMeta)
	c.read(&corev1.Secret{}, systemName, "mine")
}

func TestFullInstallReplacesProtectionAlone(t *testing.T) {
	c := newCluster(t)
	c.install(protectOnly)
	c.install(nil)
	c.awaitFinalizers("default", pvc.PodsFinalizer, pvc.BarrierFinalizer)
	c.read(&rbacv1.ClusterRole{}, "", "lockstep-protection-role")
	c.absent(&rbacv1.ClusterRole{}, "lockstep-proxy-role")
	c.refused(install.Install, protectOnly, "uninstall --keep-protection")
	claim := c.claimIn("default", "claim")
	expect.Says(t, c.uninstall(func(o *install.Options) { o.KeepProtection = true }), "PVCs stay protected")
	c.awaitFinalizers("default", pvc.PodsFinalizer, pvc.BarrierFinalizer)
	c.install(protectOnly)
	c.read(claim, "default", "claim")
	expect.That(t, slices.Contains(claim.Finalizers, pvc.BarrierFinalizer), "the PVC has finalizers %q", claim.Finalizers)
}

// Helm deletes its objects, and leaves what protection wrote. Uninstall removes that, also beside another
// implementation, whose objects stay.
func TestUninstallFreesPVCsAfterHelm(t *testing.T) {
	c := newCluster(t)
	keepSets := func(o *install.Options) { o.KeepSets = true }
	free := func(finalizers ...string) {
		t.Helper()
		claim := newClaim("default", "data")
		claim.Finalizers = []string{pvc.BarrierFinalizer}
		c.create(claim)
		out := c.uninstall(func(o *install.Options) { o.KeepSets, o.DryRun = true, true })
		if strings.Contains(out, "nothing to remove") || !slices.Contains(c.claimNow(claim).Finalizers, pvc.BarrierFinalizer) {
			t.Errorf("the dry run printed:\n%s", out)
		}
		c.uninstall(keepSets)
		left := c.claimNow(claim).Finalizers
		expect.That(t, sameSet(left, finalizers), "the PVC keeps %q, want %q", left, finalizers)
		expect.Equalf(t, "nothing to remove\n", c.uninstall(keepSets), "the second removal")
		c.must(c.Patch(t.Context(), claim, merge(`{"metadata":{"finalizers":null}}`)))
		c.must(client.IgnoreNotFound(c.Delete(t.Context(), claim)))
		c.awaitGone(claim)
	}
	c.part("no object is left", func() { free(pvc.PodsFinalizer) })
	c.part("the chart keeps the role that says that protection was alone", func() {
		c.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
			Name: "lockstep-protection-role", Annotations: map[string]string{"lockstep.dev/protects-alone": "true"},
			Labels: map[string]string{"app.kubernetes.io/name": "lockstep", "app.kubernetes.io/component": "protection"},
		}})
		free()
		c.absent(&rbacv1.ClusterRole{}, "lockstep-protection-role")
	})
	c.part("another implementation runs", func() {
		c.reference()
		c.lease(systemName, theirPod, 0)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemName, Name: "lws-webhook-server-cert"}}
		c.must(client.IgnoreAlreadyExists(c.Create(t.Context(), secret)))
		free(pvc.PodsFinalizer)
		c.read(secret, systemName, secret.Name)
		expect.Equalf(t, theirPod, c.holder(), "who holds the lease")
	})
}

// claimNow reads a PVC again.
func (c *cluster) claimNow(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	c.read(claim, claim.Namespace, claim.Name)
	return claim
}

// older starts an API server without what came later than 1.34.
func older(t *testing.T) *cluster {
	t.Helper()
	return newClusterWith(t, map[string]string{
		"disable-admission-plugins": "MutatingAdmissionPolicy,StorageObjectInUseProtection",
		"runtime-config": "admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false," +
			"admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false",
		"feature-gates": "MaxUnavailableStatefulSet=false",
	})
}

// Without mutating policies the controller adds the finalizers. It needs neither the CRD of sets nor
// rights beyond those that install grants.
func TestTheControllerProtectsWithoutMutatingPolicies(t *testing.T) {
	c := older(t)
	form := func(o *install.Options) {
		configured("protection: {alone: true}")(o)
		o.ProtectOnly = true
	}
	out := c.install(form)
	expect.Must(t, !strings.Contains(out, "mutatingadmissionpolicy") && strings.Contains(out, "1.36"), "got:\n%s", out)
	missing, err := pvccache.MissingPolicies(t.Context(), c, true, false)
	expect.That(t, err == nil && len(missing) == 0, "the installed policies lack %q: %v", missing, err)
	const user = "system:serviceaccount:" + standaloneName + ":lockstep-controller-manager"
	c.until("the API server applies the role of the operator", func() bool {
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
	c.installAgain(form)
	c.uninstall(nil)
	c.mustBeClean()
}

func newVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
	}}
}
