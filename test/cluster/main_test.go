package cluster

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"lockstep.dev/lockstep/test/drill"
)

// bed is the control plane and the operator every test of this binary runs on.
var bed *testbed

func TestMain(m *testing.M) {
	if os.Getenv(drill.ReaperEnv) != "" {
		exit(drill.Reap(os.Stdin))
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
	err = drill.Run(func(dir string, reaper *drill.Reaper) (err error) {
		if bed, err = raise(dir, "", reaper); err != nil {
			return err
		}
		failed = m.Run()
		return bed.checkWrites()
	})
	return failed, err
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
