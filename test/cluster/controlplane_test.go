package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// controllerManagerQPS lifts the ceiling that the stock setting of 20 puts on
// every StatefulSet: tests are to wait for lockstep, not for a rate limiter.
const controllerManagerQPS = 200

// nodes is how many nodes are simulated.
const nodes = 20

// Components of the control plane that a drill may kill or restart.
const (
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// controlPlane is one local control plane, driven through lockstep-local.
type controlPlane struct {
	program string
	dir     string // its own; its kubeconfig and audit log lie there
	log     string // what lockstep-local said
}

func (p *controlPlane) kubeconfig() string { return filepath.Join(p.dir, "kubeconfig") }
func (p *controlPlane) auditLog() string   { return filepath.Join(p.dir, "audit.log") }

// up starts the control plane, on ports that are free, and returns when it is
// ready.
func (p *controlPlane) up() error {
	return p.do("up", "--nodes", strconv.Itoa(nodes), "--audit", "--kcm-qps", strconv.Itoa(controllerManagerQPS))
}

// kill ends a component with SIGKILL.
func (p *controlPlane) kill(component string) error { return p.do("kill", component) }

// restart starts a component again and returns when it is ready.
func (p *controlPlane) restart(component string, flags ...string) error {
	return p.do(append([]string{"restart", component}, flags...)...)
}

// do runs lockstep-local. Its output goes to a file, not a pipe: a pipe would stay
// open for as long as any component lives.
func (p *controlPlane) do(args ...string) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args = append(args, "--dir", p.dir)
	fmt.Fprintf(log, "$ lockstep-local %s\n", strings.Join(args, " "))
	cmd := exec.Command(p.program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("lockstep-local %s: %w\n%s", strings.Join(args, " "), err, lastLines(p.log, 20))
	}
	return nil
}

// freePorts returns ports on 127.0.0.1 that nobody listens on. They lie below the
// range the kernel takes outgoing ports from, so that none is gone a moment later.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 1000 {
		port := 22000 + rand.IntN(10000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1", n)
}

// lastLines returns the end of a text file, or why it cannot be had.
func lastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
