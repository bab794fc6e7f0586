//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lockstep.dev/lockstep/test/drill"
)

// bed is the control plane and the node of every test.
var bed *testbed

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(relayEnv) != "":
		drill.Exit((&relay{dir: os.Args[1], port: os.Args[2]}).run())
	case os.Getenv(drill.ReaperEnv) != "": // drill.Main then acts as the reaper
	case os.Getenv(askedFor) == "":
		fmt.Println("the drills on a real node need \"make node\"")
		os.Exit(0)
	case os.Getenv(askedFor) == "needs": // before make builds the binaries
		drill.Exit(needs())
	}
	bed = &testbed{}
	drill.Main(m, func(dir string, reaper *drill.Reaper) error {
		err := needs()
		if err == nil {
			err = bed.raise(dir, reaper)
		}
		return err
	}, func() error { return bed.leave() })
}

// networkPlugins is the directory of the network plugins on Debian.
const networkPlugins = "/usr/lib/cni"

// askedFor is the variable that "make node" sets. Without it no drill runs, because of their needs.
const askedFor = "LOCKSTEP_NODE"

// errInstead names the alternative on machines that cannot run a real node.
var errInstead = errors.New("no real node can run here; make test runs the same operator with simulated kubelets, and needs none of this")

// needs returns an error that names everything that is missing, and how to install it.
func needs() error {
	var missing []error
	if os.Geteuid() != 0 {
		missing = append(missing, errors.New("not root: the test creates control groups, mounts and networks. Run: sudo -E make node"))
	}
	for program, from := range map[string]string{"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2",
		"iptables": "iptables", "nsenter": "util-linux", "unshare": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, fmt.Errorf("%s is not installed. On Debian: apt-get install --no-install-recommends %s", program, from))
		}
	}
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(networkPlugins, plugin)); err != nil {
			missing = append(missing, fmt.Errorf("network plugin %s: %w. On Debian: apt-get install --no-install-recommends containernetworking-plugins", plugin, err))
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || !strings.Contains(string(mounts), " cgroup") {
		missing = append(missing, errors.Join(errors.New("no control groups are mounted"), err))
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.Join(append(missing, errInstead)...)
}
