//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"lockstep.dev/lockstep/test/drill"
)

// bed is what every test of this binary runs on.
var bed *testbed

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(drill.ReaperEnv) != "":
		exit(drill.Reap(os.Stdin))
	case os.Getenv(stageEnv) == "keeper":
		exit(keep(os.Args[1], os.Args[2]))
	case os.Getenv(stageEnv) == "first":
		exit(first(os.Args[1]))
	case os.Getenv(askedFor) == "":
		fmt.Println("drills on a real node run by \"make node\" only")
		os.Exit(0)
	case os.Getenv(askedFor) == "needs": // before anything is built for it
		exit(needs())
	}
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	failed, err := run(m)
	if err == nil && failed != 0 {
		os.Exit(failed)
	}
	exit(err)
}

// run runs the tests on a control plane and a node of their own.
func run(m *testing.M) (failed int, err error) {
	if err := needs(); err != nil {
		return 0, err
	}
	err = drill.Run(func(dir string, reaper *drill.Reaper) (err error) {
		bed = &testbed{}
		defer func() { err = errors.Join(err, bed.leave()) }()
		if err := bed.raise(dir, reaper); err != nil {
			return err
		}
		failed = m.Run()
		return nil
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
