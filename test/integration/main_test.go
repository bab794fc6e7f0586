// Package integration checks what only a real API server can show: how it applies
// the CustomResourceDefinition, preconditions and field ownership.
//
// It starts etcd and kube-apiserver once for all tests. No controller, scheduler or
// garbage collector runs, and objects stay after a test: every test uses its own namespace.
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
	// cfg connects to the API server as an administrator.
	cfg *rest.Config

	// assets is the directory of the binaries. envtest reads the variable as well.
	assets = cmp.Or(os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(root, "bin", "assets"))

	// api is an uncached client of cfg that knows the core types and LeaderWorkerSets.
	api client.Client

	// scheme has the types of api.
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

// startUp starts an API server with a changed environment. envtest waits only five seconds
// for the first namespace. On a slow machine that fails, and startUp tries again.
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
