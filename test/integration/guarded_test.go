package integration

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// guarded is an API server with admission policies, and a namespace with two users: alice may do
// everything with PVCs but release them, wanda may release them too.
type guarded struct {
	*cluster
	alice, wanda client.Client
	namespace    string
	// warned collects the warnings of the API server.
	warned *warnings
	// chosen are the policy variables that are switched on.
	chosen []string
}

// choose switches policy variables on, as install does.
func choose(o *unstructured.Unstructured, chosen []string) error {
	variables, found, err := unstructured.NestedSlice(o.Object, "spec", "variables")
	if err != nil || !found {
		return err
	}
	for _, v := range variables {
		if v := v.(map[string]any); slices.Contains(chosen, v["name"].(string)) {
			v["expression"] = "true"
		}
	}
	return unstructured.SetNestedSlice(o.Object, variables, "spec", "variables")
}

type warnings struct {
	sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.Lock()
	defer w.Unlock()
	w.texts = append(w.texts, text)
}

// taken returns the warnings since the last call, a line each.
func (w *warnings) taken() string {
	w.Lock()
	defer w.Unlock()
	texts := strings.Join(w.texts, "\n")
	w.texts = nil
	return texts
}

func newGuarded(t *testing.T, files ...string) *guarded {
	t.Helper()
	g := &guarded{cluster: newCluster(t), namespace: "prod", warned: &warnings{}}
	g.alice, g.wanda = g.as("alice", g.warned), g.as("wanda", g.warned)
	g.create(namespaced(g.namespace))
	g.grant("claims", []string{"alice", "wanda"}, claimRule("*"), namespaceRule)
	g.grant("releases", []string{"wanda"}, rbacv1.PolicyRule{APIGroups: []string{"protection.lockstep.dev"}, Resources: []string{"claims"}, Verbs: []string{"release"}})
	for _, file := range files {
		g.apply(file)
	}
	return g
}

var namespaceRule = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/status"}, Verbs: []string{"*"}}

func claimRule(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumeclaims/status"}, Verbs: verbs}
}

// apply creates the objects of a file of config/protection. Here an expression that fails denies the request.
func (g *guarded) apply(name string) {
	g.t.Helper()
	g.eachIn(filepath.Join(root, "config", "protection", name), func(o *unstructured.Unstructured) {
		g.must(choose(o, g.chosen))
		if _, found, _ := unstructured.NestedString(o.Object, "spec", "failurePolicy"); found {
			g.must(unstructured.SetNestedField(o.Object, "Fail", "spec", "failurePolicy"))
		}
		g.create(o)
	})
}

// claim creates a PVC as an administrator.
func (g *guarded) claim(name string, annotations map[string]string, finalizers ...string) *corev1.PersistentVolumeClaim {
	g.t.Helper()
	c := newClaim(g.namespace, name)
	c.Annotations, c.Finalizers = annotations, finalizers
	g.create(c)
	return c
}

func newClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: drill.ClaimSpec()}
}

// inForce waits until the API server enforces every policy.
func (g *guarded) inForce() {
	g.t.Helper()
	probe := 0
	g.until("the deletion of a PVC is refused", func() bool {
		probe++
		c := g.claim("probe", held)
		err := g.Delete(g.t.Context(), c)
		if err == nil {
			g.strip(c)
		}
		expect.Must(g.t, err == nil || isRefused(err, "in use"), "%v", err)
		return err != nil
	})
	g.until("a PVC is guarded", func() bool {
		c := g.read("probe")
		c.Annotations[pvc.HoldersAnnotation] = "forged"
		return isRefused(g.alice.Update(g.t.Context(), c, client.DryRunAll), "needs permission")
	})
	g.until("a PVC gets its barrier", func() bool {
		c := newClaim(g.namespace, "dry")
		g.must(g.Create(g.t.Context(), c, client.DryRunAll))
		return slices.Contains(c.Finalizers, pvc.BarrierFinalizer)
	})
	g.until("forged annotations are removed", func() bool {
		c := newClaim(g.namespace, "dry")
		c.Annotations = map[string]string{pvc.HoldAnnotation: "mine"}
		g.must(g.alice.Create(g.t.Context(), c, client.DryRunAll))
		ns := dryNamespace(pvc.HeldClaimsAnnotation)
		g.must(g.alice.Create(g.t.Context(), ns, client.DryRunAll))
		return len(c.Annotations) == 0 && len(ns.Annotations) == 0
	})
	g.until("the deletion of a namespace is refused", func() bool {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Annotations: map[string]string{pvc.HeldClaimsAnnotation: "1"}}}
		g.create(ns)
		return isRefused(g.Delete(g.t.Context(), ns, client.DryRunAll), "has claims in use: 1") &&
			isRefused(g.annotateNamespace(g.alice, ns.Name, pvc.HeldClaimsAnnotation, "0"), "needs permission")
	})
}

// strip removes the annotations and the finalizers of a PVC.
func (g *guarded) strip(c *corev1.PersistentVolumeClaim) {
	g.t.Helper()
	for _, off := range []string{`{"metadata":{"annotations":null}}`, `{"metadata":{"finalizers":null}}`} { // annotations first: a policy may refuse a finalizer change of a held PVC
		err := g.Patch(g.t.Context(), c, merge(off))
		expect.Must(g.t, client.IgnoreNotFound(err) == nil, "%v", err)
	}
}

func (g *guarded) read(name string) *corev1.PersistentVolumeClaim {
	g.t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	g.must(g.Get(g.t.Context(), client.ObjectKey{Namespace: g.namespace, Name: name}, c))
	return c
}

func (g *guarded) annotate(as client.Client, name, key, value string) error {
	c := g.read(name)
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value)
	return as.Update(g.t.Context(), c)
}

func (g *guarded) annotateNamespace(as client.Client, name, key, value string) error {
	ns := &corev1.Namespace{}
	if err := g.Get(g.t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&ns.ObjectMeta, key, value)
	return as.Update(g.t.Context(), ns)
}

// isRefused reports whether an error is a 403 with this text.
func isRefused(err error, says string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), says)
}

var held = map[string]string{pvc.HoldersAnnotation: "StatefulSet/db, +2"}

func (g *guarded) mustRefuse(err error, says string) {
	g.t.Helper()
	wantError(g.t, err, apierrors.IsForbidden, says)
}

func sameSet(a, b []string) bool { return len(a) == len(b) && sets.New(a...).Equal(sets.New(b...)) }
