package integration

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/webhook"
)

const (
	crdName    = "leaderworkersets.leaderworkerset.x-k8s.io"
	systemName = "lws-system"

	standaloneName = "lockstep-system" // of protection by itself
	someURL        = "https://127.0.0.1:9"

	// patience bounds every wait for what must come. It is far beyond what anything
	// takes, so that a slow machine is not mistaken for a broken one.
	patience = 150 * time.Second
)

// cluster is an API server of one test's own, with nothing installed: webhooks
// and a definition that come and go would disturb all others.
type cluster struct {
	t   *testing.T
	cfg *rest.Config
	client.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterWith(t, nil)
}

// newClusterWith starts the API server with flags.
func newClusterWith(t *testing.T, flags map[string]string) *cluster {
	t.Helper()
	_, own := newEnvironment(t, flags)
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, lwsv1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(own, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t: t, cfg: own, Client: c}
}

// newEnvironment is an API server of one test's own, started with flags.
func newEnvironment(t *testing.T, flags map[string]string) (*envtest.Environment, *rest.Config) {
	t.Helper()
	env, own, err := startUp(ownBinaries(t), func(env *envtest.Environment) {
		for flag, value := range flags {
			env.ControlPlane.GetAPIServer().Configure().Append(flag, value)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Stop() })
	return env, own
}

// ownBinaries are the names under which envtest looks for the local control
// plane, in a directory that goes with the test.
func ownBinaries(t *testing.T) string {
	t.Helper()
	controlPlane, err := filepath.Abs(filepath.Join(root, "bin", "lockstep-local"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.Symlink(controlPlane, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (c *cluster) options(out *bytes.Buffer) install.Options {
	return install.Options{REST: c.cfg, WebhookURL: someURL, Timeout: patience, Out: out}
}

// install returns what it printed.
func (c *cluster) install(change func(*install.Options)) string {
	c.t.Helper()
	var out bytes.Buffer
	o := c.options(&out)
	if change != nil {
		change(&o)
	}
	if err := install.Install(c.t.Context(), o); err != nil {
		c.t.Fatalf("install: %v\n%s", err, out.String())
	}
	return out.String()
}

// uninstall stands in for the namespace controller, which this cluster lacks.
func (c *cluster) uninstall(change func(*install.Options)) (string, error) {
	c.t.Helper()
	var out bytes.Buffer
	o := c.options(&out)
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	go c.finalizeNamespace(ctx)
	err := install.Uninstall(ctx, o)
	return out.String(), err
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
	c.read(m, "", webhook.MutatingConfiguration)
	return m
}

func (c *cluster) validating() *admissionv1.ValidatingWebhookConfiguration {
	c.t.Helper()
	v := &admissionv1.ValidatingWebhookConfiguration{}
	c.read(v, "", webhook.ValidatingConfiguration)
	return v
}

func (c *cluster) read(object client.Object, namespace, name string) {
	c.t.Helper()
	if err := c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) create(object client.Object) {
	c.t.Helper()
	if err := c.Create(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) absent(object client.Object, name string) {
	c.t.Helper()
	c.absentIn(object, "", name)
}

func (c *cluster) absentIn(object client.Object, namespace, name string) {
	c.t.Helper()
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		c.t.Errorf("%T %q is still there: %v", object, name, err)
	}
}

// createSet goes past the webhooks, which nobody answers here.
func (c *cluster) createSet(name string) *lwsv1.LeaderWorkerSet {
	c.t.Helper()
	for _, object := range []client.Object{c.mutating(), c.validating()} {
		if err := c.Delete(c.t.Context(), object); err != nil {
			c.t.Fatal(err)
		}
	}
	set := newSet("default", name)
	var last error
	if err := wait.PollUntilContextTimeout(c.t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = c.Create(ctx, set) // the API server forgets the webhooks a moment later
		return last == nil, nil
	}); err != nil {
		c.t.Fatal(last)
	}
	return set
}

func newSet(namespace, name string) *lwsv1.LeaderWorkerSet {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	set.Spec.StartupPolicy = lwsv1.LeaderCreatedStartupPolicy
	set.Spec.RolloutStrategy.Type = lwsv1.RollingUpdateStrategyType
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	return set
}
