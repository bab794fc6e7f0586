package cluster

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// bed is the control plane and the operator every test of this binary runs on.
var bed *testbed

func TestMain(m *testing.M) {
	if os.Getenv(reaperEnv) != "" {
		exit(reap(os.Stdin))
	}
	klog.SetLogger(logr.Discard()) // an API server that was killed on purpose is no news
	log.SetLogger(logr.Discard())
	failed, err := run(m)
	if err == nil && failed != 0 {
		os.Exit(failed)
	}
	exit(err)
}

// run runs the tests on a control plane of their own.
func run(m *testing.M) (failed int, err error) {
	dir, remove, err := runDir()
	if err != nil {
		return 0, err
	}
	defer remove()
	reaper, err := startReaper(dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, reaper.finish()) }()

	if bed, err = raise(dir, reaper); err != nil {
		return 0, err
	}
	failed = m.Run()
	return failed, bed.checkWrites()
}

// runDir is where logs go, and what is to be done with it in the end.
func runDir() (dir string, remove func(), err error) {
	if dir = os.Getenv("LOCKSTEP_KEEP"); dir != "" {
		return dir, func() {}, os.MkdirAll(dir, 0o755)
	}
	dir, err = os.MkdirTemp("", "lockstep-cluster-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
