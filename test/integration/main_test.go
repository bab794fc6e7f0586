// Package integration asks a real API server what only it can say: what it
// makes of our definition, of preconditions, of who owns a field.
//
// It knows etcd and kube-apiserver, started once for all tests. There is no
// controller, no scheduler and no garbage collector here, and what a test
// creates stays: every test has a namespace of its own.
package integration

import (
	"cmp"
	"errors"
	"fmt"
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

	// assets is the directory of the binaries. envtest reads the variable by itself.
	assets = cmp.Or(os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(root, "bin", "assets"))

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
	if _, err := os.Stat(assets); err != nil {
		return 0, fmt.Errorf("run make build first: %w", err)
	}
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
