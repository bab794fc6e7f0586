// Package integration checks what only a real API server can show: how it applies
// the CustomResourceDefinition, preconditions and field ownership.
//
// It starts etcd and kube-apiserver for each test. No controller, scheduler or garbage collector runs.
package integration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/expect"
)

const (
	crdName    = "leaderworkersets.leaderworkerset.x-k8s.io"
	systemName = "lws-system"

	standaloneName = "lockstep-system" // if protection alone is installed
	someURL        = "https://127.0.0.1:9"

	// patience bounds every wait. It is far longer than any step takes, so that a slow machine
	// does not fail a test.
	patience = 150 * time.Second
)

// cluster is an API server and its administrator.
type cluster struct {
	t   *testing.T
	env *envtest.Environment
	cfg *rest.Config
	client.Client
}

// newCluster starts an API server for one test, with nothing installed.
func newCluster(t *testing.T) *cluster { return newClusterWith(t, nil) }

// withDefinition starts an API server for one test, with the definition of sets alone.
func withDefinition(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	_, err := envtest.InstallCRDs(c.cfg, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(root, "config", "crd")}, ErrorIfPathMissing: true, MaxTime: patience,
	})
	c.must(err)
	return c
}

// newClusterWith starts an API server with flags.
func newClusterWith(t *testing.T, flags map[string]string) *cluster {
	t.Helper()
	env, own, err := startUp(flags)
	expect.OK(t, err)
	t.Cleanup(func() { _ = env.Stop() })
	own.QPS = -1
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, lwsv1.AddToScheme, dsv1.AddToScheme, apiextensionsv1.AddToScheme} {
		expect.OK(t, add(known))
	}
	direct := expect.Value(client.New(own, client.Options{Scheme: known}))(t)
	return &cluster{t: t, env: env, cfg: own, Client: direct}
}

// part runs a part of the test.
func (c *cluster) part(name string, run func()) {
	whole := c.t
	whole.Run(name, func(t *testing.T) {
		c.t = t
		defer func() { c.t = whole }()
		run()
	})
}

// namespace creates a namespace of its own.
func (c *cluster) namespace() string {
	c.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	c.create(ns)
	return ns.Name
}

func (c *cluster) must(err error) { c.t.Helper(); expect.OK(c.t, err) }

// wantError checks the kind of an error, and that it has these texts.
func wantError(t *testing.T, err error, is func(error) bool, texts ...string) {
	t.Helper()
	lacks := func(text string) bool { return !strings.Contains(err.Error(), text) }
	expect.That(t, is(err) && !slices.ContainsFunc(texts, lacks), "got  %v\nwant an error with %q", err, texts)
}

func merge(document string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(document))
}

func namespaced(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func inMode(name, mode string) *corev1.Namespace {
	ns := namespaced(name)
	ns.Labels = map[string]string{pvc.ModeKey: mode}
	return ns
}

// as returns a client that acts as a user. Warnings of the API server go to warned.
func (c *cluster) as(user string, warned rest.WarningHandler) client.Client {
	c.t.Helper()
	config := rest.CopyConfig(c.cfg)
	config.Impersonate.UserName, config.WarningHandler = user, warned
	return expect.Value(client.New(config, client.Options{Scheme: c.Scheme()}))(c.t)
}

// grant binds a new ClusterRole to users, and waits until the API server applies it.
func (c *cluster) grant(name string, users []string, rules ...rbacv1.PolicyRule) {
	c.t.Helper()
	c.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}
	for _, user := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: user})
	}
	c.create(binding)
	last := rules[len(rules)-1]
	for _, user := range users {
		c.until(user+" has the permission", func() bool {
			return c.may(user, authorizationv1.ResourceAttributes{Namespace: "any", Verb: last.Verbs[len(last.Verbs)-1], Group: last.APIGroups[0], Resource: last.Resources[0]})
		})
	}
}

// may reports whether a user has a permission. The API server applies a new role after a delay.
func (c *cluster) may(user string, what authorizationv1.ResourceAttributes) bool {
	c.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &what}}
	c.must(c.Create(c.t.Context(), review))
	return review.Status.Allowed
}

// eachIn visits the objects of a manifest.
func (c *cluster) eachIn(path string, visit func(*unstructured.Unstructured)) {
	c.t.Helper()
	text := expect.Value(os.ReadFile(path))(c.t)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), object); !runtime.IsMissingKind(err) { // a comment has none
			c.must(err)
			visit(object)
		}
	}
}

// manifests returns the objects of a file of testdata.
func (c *cluster) manifests(name string) (all []client.Object) {
	c.t.Helper()
	c.eachIn(filepath.Join("testdata", name), func(o *unstructured.Unstructured) { all = append(all, o) })
	return all
}

// act installs or uninstalls, and returns the output.
func (c *cluster) act(do func(context.Context, install.Options) error, change func(*install.Options)) (string, error) {
	c.t.Helper()
	var out bytes.Buffer
	o := install.Options{REST: c.cfg, WebhookURL: someURL, Timeout: patience, Out: &out}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	go c.finalizeNamespace(ctx) // this cluster lacks the namespace controller
	err := do(ctx, o)
	return out.String(), err
}

// install returns the output of an install.
func (c *cluster) install(change func(*install.Options)) string {
	c.t.Helper()
	out, err := c.act(install.Install, change)
	expect.Must(c.t, err == nil, "install: %v\n%s", err, out)
	return out
}

// installAgain checks that a second install changes nothing.
func (c *cluster) installAgain(change func(*install.Options)) {
	c.t.Helper()
	again := c.install(change)
	if strings.Contains(again, " created\n") || strings.Contains(again, " configured\n") || !strings.Contains(again, "nothing had to be changed") {
		c.t.Errorf("the second run changed something:\n%s", again)
	}
}

// uninstall returns the output of an uninstall.
func (c *cluster) uninstall(change func(*install.Options)) string {
	c.t.Helper()
	out, err := c.act(install.Uninstall, change)
	expect.Must(c.t, err == nil, "uninstall: %v\n%s", err, out)
	return out
}

// refused checks that an install or uninstall ends with an error that has these texts.
func (c *cluster) refused(do func(context.Context, install.Options) error, change func(*install.Options), texts ...string) {
	c.t.Helper()
	out, err := c.act(do, change)
	expect.Must(c.t, err != nil, "got no error:\n%s", out)
	for _, text := range texts {
		expect.Says(c.t, err.Error(), text)
	}
}

func (c *cluster) finalizeNamespace(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, name := range []string{systemName, standaloneName} {
			ns := &corev1.Namespace{}
			if c.Get(ctx, client.ObjectKey{Name: name}, ns) == nil && ns.DeletionTimestamp != nil {
				ns.Spec.Finalizers = nil
				_ = c.SubResource("finalize").Update(ctx, ns)
			}
		}
		return false, nil
	})
}

func (c *cluster) mutating() *admissionv1.MutatingWebhookConfiguration {
	c.t.Helper()
	m := &admissionv1.MutatingWebhookConfiguration{}
	c.read(m, "", certs.MutatingConfiguration)
	return m
}

func (c *cluster) validating() *admissionv1.ValidatingWebhookConfiguration {
	c.t.Helper()
	v := &admissionv1.ValidatingWebhookConfiguration{}
	c.read(v, "", certs.ValidatingConfiguration)
	return v
}

func (c *cluster) read(object client.Object, namespace, name string) {
	c.t.Helper()
	c.must(c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object))
}

func (c *cluster) create(object client.Object) {
	c.t.Helper()
	c.must(c.Create(c.t.Context(), object))
}

func (c *cluster) absent(object client.Object, name string) {
	c.t.Helper()
	err := c.Get(c.t.Context(), client.ObjectKey{Name: name}, object)
	expect.That(c.t, apierrors.IsNotFound(err) || meta.IsNoMatchError(err), "%T %q is still there: %v", object, name, err)
}

// createSet creates a set. It deletes the webhooks first, because their server does not run here.
func (c *cluster) createSet(name string) *lwsv1.LeaderWorkerSet {
	c.t.Helper()
	for _, object := range []client.Object{c.mutating(), c.validating()} {
		c.must(c.Delete(c.t.Context(), object))
	}
	set := newSet("default", name)
	c.until("the API server calls no webhooks", func() bool { return c.Create(c.t.Context(), set) == nil })
	return set
}

func newSet(namespace, name string) *lwsv1.LeaderWorkerSet {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	set.Spec.StartupPolicy = lwsv1.LeaderCreatedStartupPolicy
	set.Spec.RolloutStrategy.Type = lwsv1.RollingUpdateStrategyType
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	return set
}

const root = "../.."

// startUp starts an API server with flags. envtest waits only five seconds for the first namespace. On a slow machine
// that fails, and startUp tries again.
func startUp(flags map[string]string) (*envtest.Environment, *rest.Config, error) {
	assets := cmp.Or(os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(root, "bin", "assets"))
	if _, err := os.Stat(assets); err != nil {
		return nil, nil, fmt.Errorf("run make build first: %w", err)
	}
	var failed error
	for range 5 {
		env := &envtest.Environment{BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience}
		for flag, value := range flags {
			env.ControlPlane.GetAPIServer().Configure().Append(flag, value)
		}
		config, err := env.Start()
		if err == nil {
			return env, config, nil
		}
		failed = errors.Join(failed, err, env.Stop())
	}
	return nil, nil, fmt.Errorf("start the API server: %w", failed)
}
