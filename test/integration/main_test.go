// Package integration asks a real API server what only it can say: what it
// makes of our definition, of preconditions, of who owns a field.
//
// It knows etcd and kube-apiserver, started once for all tests. There is no
// controller, no scheduler and no garbage collector here, and what a test
// creates stays: every test has a namespace of its own.
package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

var (
	// cfg reaches the API server as an administrator.
	cfg *rest.Config

	// api is an uncached client of cfg that knows the core types and ours.
	api client.Client

	// scheme is what api knows.
	scheme = runtime.NewScheme()
)

const root = "../.."

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	assets, err := binaries()
	if err != nil {
		return 0, err
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{filepath.Join(root, "config", "crd")},
		ErrorIfCRDPathMissing: true,
	}
	if cfg, err = env.Start(); err != nil {
		return 0, fmt.Errorf("start the API server: %w", err)
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), lwsv1.AddToScheme(scheme)); err != nil {
		return 0, err
	}
	if api, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// binaries finds what envtest starts: etcd and kube-apiserver, which are the one
// binary of the local control plane under other names.
func binaries() (dir string, err error) {
	dir = os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		dir = filepath.Join(root, "bin", "assets")
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("the integration tests need an API server: %w: run `make build` first", err)
		}
	}
	return filepath.Abs(dir)
}

// newNamespace is a namespace that no other test knows.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}
