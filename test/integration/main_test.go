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
	"io/fs"
	"os"
	"path/filepath"
	"testing"

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

	// assets is the directory of the binaries.
	assets string

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
	if assets, err = binaries(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(assets)) }()
	env, own, err := startUp(func(env *envtest.Environment) {
		env.CRDInstallOptions = envtest.CRDInstallOptions{
			Paths: []string{filepath.Join(root, "config", "crd")}, ErrorIfPathMissing: true, MaxTime: patience,
		}
	})
	if err != nil {
		return 0, err
	}
	cfg = own
	defer func() { err = errors.Join(err, env.Stop()) }()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), lwsv1.AddToScheme(scheme)); err != nil {
		return 0, err
	}
	if api, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// startUp starts an API server as changed, in whatever time that takes the machine. The
// library waits no longer than five seconds for the first namespace to be there: then
// another one is started.
func startUp(change func(*envtest.Environment)) (*envtest.Environment, *rest.Config, error) {
	var failed error
	for range 5 {
		env := &envtest.Environment{BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience}
		change(env)
		config, err := env.Start()
		if err == nil {
			return env, config, nil
		}
		failed = errors.Join(failed, err, env.Stop())
	}
	return nil, nil, fmt.Errorf("start the API server: %w", failed)
}

// binaries returns a directory in which envtest finds what it starts: the binary of the local control
// plane, under the names of its parts. The caller removes the directory.
func binaries() (string, error) {
	controlPlane, err := filepath.Abs(filepath.Join(root, "bin", "lockstep-local"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(controlPlane); errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("the integration tests need bin/lockstep-local: run `make build` first")
	}
	// envtest prefers this variable to what it is told.
	if err := os.Unsetenv("KUBEBUILDER_ASSETS"); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "lockstep-assets-")
	for _, name := range []string{"etcd", "kube-apiserver"} {
		err = errors.Join(err, os.Symlink(controlPlane, filepath.Join(dir, name)))
	}
	return dir, err
}
