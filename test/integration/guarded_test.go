package integration

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// guarded is an API server with the admission policies in it, and one namespace
// with two users: alice may do everything with claims but release them, wanda may
// do that as well.
type guarded struct {
	t *testing.T
	client.Client
	alice, wanda client.Client
	namespace    string
	config       *rest.Config
	// warned is what the server warned of.
	warned *warnings
	// chosen are the switches of policies that are on.
	chosen []string
}

// choose switches variables of a policy on, as install does.
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

func (w *warnings) taken() []string {
	w.Lock()
	defer w.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

func newGuarded(t *testing.T, flags map[string]string, files ...string) *guarded {
	t.Helper()
	_, own := newEnvironment(t, flags)
	g := &guarded{t: t, namespace: "prod", config: own, warned: &warnings{}}
	g.Client = g.as(own, "")
	g.alice, g.wanda = g.as(own, "alice"), g.as(own, "wanda")
	g.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.namespace}})
	g.grant("claims", "alice", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumeclaims/status"}, Verbs: []string{"*"}})
	g.grant("claims", "wanda", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumeclaims/status"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{"protection.lockstep.dev"}, Resources: []string{"claims"}, Verbs: []string{"release"}})
	for _, file := range files {
		g.apply(file)
	}
	return g
}

func (g *guarded) as(cfg *rest.Config, user string) client.Client {
	g.t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate.UserName = user
	cfg.WarningHandler = g.warned
	c, err := client.New(cfg, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

func (g *guarded) make(o client.Object) {
	g.t.Helper()
	if err := g.Create(g.t.Context(), o); err != nil {
		g.t.Fatal(err)
	}
}

// grant lets a user do what the rules say, in the namespace.
func (g *guarded) grant(name, user string, rules ...rbacv1.PolicyRule) {
	g.t.Helper()
	name += "-" + user
	g.make(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: append(rules,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/status"}, Verbs: []string{"*"}})})
	g.make(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	last := rules[len(rules)-1]
	g.until(user+" may do so", func() bool {
		return may(g.t, g.Client, user, authorizationv1.ResourceAttributes{
			Namespace: g.namespace, Verb: last.Verbs[len(last.Verbs)-1], Group: last.APIGroups[0], Resource: last.Resources[0],
		})
	})
}

// may asks whether a user may do something: the API server hears of a role and of its
// binding a moment after they are made.
func may(t *testing.T, c client.Client, user string, what authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &what}}
	if err := c.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// apply creates what is in a file of config/protection. An expression that errs
// is to be heard of here, whatever it does elsewhere.
func (g *guarded) apply(name string) {
	g.t.Helper()
	file, err := os.Open(filepath.Join(root, "config", "protection", name))
	if err != nil {
		g.t.Fatal(err)
	}
	defer file.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			g.t.Fatalf("%s: %v", name, err)
		}
		g.must(choose(o, g.chosen))
		if _, found, _ := unstructured.NestedString(o.Object, "spec", "failurePolicy"); found {
			g.must(unstructured.SetNestedField(o.Object, "Fail", "spec", "failurePolicy"))
		}
		g.make(o)
	}
}

// claim is one that an administrator made, as he made it.
func (g *guarded) claim(name string, annotations map[string]string, finalizers ...string) *corev1.PersistentVolumeClaim {
	g.t.Helper()
	c := newClaim(g.namespace, name)
	c.Annotations, c.Finalizers = annotations, finalizers
	g.make(c)
	return c
}

func newClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// until asks again until the server knows its policies: it reads them as it likes.
func (g *guarded) until(what string, done func() bool) {
	g.t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			g.t.Fatalf("in vain: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// inForce waits until every policy given does what it is there for.
func (g *guarded) inForce() {
	g.t.Helper()
	probe := 0
	g.until("a claim is refused its deletion", func() bool {
		probe++
		c := g.claim("probe", held)
		err := g.Delete(g.t.Context(), c)
		if err == nil {
			g.strip(c)
		}
		if err != nil && !isRefused(err, "in use") {
			g.t.Fatal(err)
		}
		return err != nil
	})
	g.until("a claim is guarded", func() bool {
		c := g.read("probe")
		c.Annotations[pvc.HoldersAnnotation] = "forged"
		return isRefused(g.alice.Update(g.t.Context(), c, client.DryRunAll), "")
	})
	g.until("a claim gets its barrier", func() bool {
		c := newClaim(g.namespace, "dry")
		if err := g.Create(g.t.Context(), c, client.DryRunAll); err != nil {
			g.t.Fatal(err)
		}
		return slices.Contains(c.Finalizers, pvc.BarrierFinalizer)
	})
	g.until("words are taken off", func() bool {
		c := newClaim(g.namespace, "dry")
		c.Annotations = map[string]string{pvc.HoldAnnotation: "mine"}
		if err := g.alice.Create(g.t.Context(), c, client.DryRunAll); err != nil {
			g.t.Fatal(err)
		}
		ns := dryNamespace(pvc.HeldClaimsAnnotation)
		if err := g.alice.Create(g.t.Context(), ns, client.DryRunAll); err != nil {
			g.t.Fatal(err)
		}
		return len(c.Annotations) == 0 && len(ns.Annotations) == 0
	})
	g.until("a namespace is refused its deletion", func() bool {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Annotations: map[string]string{pvc.HeldClaimsAnnotation: "1"}}}
		g.make(ns)
		return isRefused(g.Delete(g.t.Context(), ns, client.DryRunAll), "has claims in use: 1") &&
			isRefused(g.annotateNamespace(g.alice, ns.Name, pvc.HeldClaimsAnnotation, "0"), "needs permission")
	})
}

// strip lets go of a claim that is on its way out.
func (g *guarded) strip(c *corev1.PersistentVolumeClaim) {
	g.t.Helper()
	for _, off := range []string{`{"metadata":{"annotations":null}}`, `{"metadata":{"finalizers":null}}`} { // words first: they may be guarded by now
		if err := g.Patch(g.t.Context(), c, client.RawPatch("application/merge-patch+json", []byte(off))); client.IgnoreNotFound(err) != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *guarded) read(name string) *corev1.PersistentVolumeClaim {
	g.t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	if err := g.Get(g.t.Context(), client.ObjectKey{Namespace: g.namespace, Name: name}, c); err != nil {
		g.t.Fatal(err)
	}
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

// isRefused tells whether an error is 403 and says so.
func isRefused(err error, says string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), "cannot")
}

var held = map[string]string{pvc.HoldersAnnotation: "StatefulSet/db, +2"}

func (g *guarded) mustRefuse(err error, says string) {
	g.t.Helper()
	if !isRefused(err, says) {
		g.t.Errorf("got %v, want a refusal that says %q", err, says)
	}
}

// needs ends the test: there is no going on without.
func (g *guarded) needs(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *guarded) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Error(err)
	}
}

// on returns g for a part of the test.
func (g guarded) on(t *testing.T) *guarded {
	g.t = t
	return &g
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// mustRefuse2 is mustRefuse for texts with "cannot" in them.
func (g *guarded) mustRefuse2(err error, says string) {
	g.t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
		g.t.Errorf("got %v, want a refusal that says %q", err, says)
	}
}
