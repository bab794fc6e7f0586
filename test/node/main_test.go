//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	case os.Getenv(stageEnv) == "keeper":
		drill.Exit(keep(os.Args[1], os.Args[2]))
	case os.Getenv(stageEnv) == "first":
		drill.Exit(first(os.Args[1]))
	case os.Getenv(drill.ReaperEnv) != "": // drill.Main is the reaper, then
	case os.Getenv(askedFor) == "":
		fmt.Println("drills on a real node run by \"make node\" only")
		os.Exit(0)
	case os.Getenv(askedFor) == "needs": // before anything is built for it
		drill.Exit(needs())
	}
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	bed = &testbed{}
	drill.Main(m, func(dir string, reaper *drill.Reaper) error {
		err := needs()
		if err == nil {
			err = bed.raise(dir, reaper)
		}
		return err
	}, func() error { return bed.leave() })
}

// networkPlugins is where Debian puts them.
const networkPlugins = "/usr/lib/cni"

// askedFor is the variable that "make node" sets: the drills run by name only, because of
// what they need.
const askedFor = "LOCKSTEP_NODE"

// errInstead says what to do where a real node cannot run.
var errInstead = errors.New("no real node can run here; make test runs the same operator against simulated kubelets, and needs none of this")

// needs returns an error that says everything that is missing, and how to come by it.
func needs() error {
	var missing []error
	if os.Geteuid() != 0 {
		missing = append(missing, errors.New("not root: control groups, mounts and networks are to be made. Run: sudo -E make node"))
	}
	for program, from := range map[string]string{"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, fmt.Errorf("%s is not installed. On Debian: apt-get install --no-install-recommends %s", program, from))
		}
	}
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(networkPlugins, plugin)); err != nil {
			missing = append(missing, fmt.Errorf("network plugin %s: %w. On Debian: apt-get install --no-install-recommends containernetworking-plugins", plugin, err))
		}
	}
	if _, err := hierarchies(); err != nil {
		missing = append(missing, err)
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.Join(append(missing, errInstead)...)
}
