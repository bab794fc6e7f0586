package drill

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Components of the control plane that a test may kill or restart.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Plane is one local control plane, driven through lockstep-local.
type Plane struct {
	Program string
	Dir     string // the directory of the plane, with its kubeconfig and audit log
	Log     string // the output of lockstep-local
	// Nodes is how many nodes are simulated.
	Nodes int
	// QPS is the controller manager's limit of requests per second. The default of 20
	// limits all StatefulSets together. The burst is 1.5 times the QPS.
	QPS int
	// Kubelet lets kwok stand in for kubelets where logs are read and commands are run.
	Kubelet bool
	// Egress is the Unix socket of a proxy through which the API server reaches Services and kubelets.
	Egress string
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (p *Plane) Kubeconfig() string { return filepath.Join(p.Dir, "kubeconfig") }

// AuditLog is the path of the API server's audit log.
func (p *Plane) AuditLog() string { return filepath.Join(p.Dir, "audit.log") }

// Up starts the control plane on free ports, and returns when it is ready.
func (p *Plane) Up() error {
	args := []string{"up", "--nodes", strconv.Itoa(p.Nodes), "--audit", "--kcm-qps", strconv.Itoa(p.QPS)}
	if p.Egress != "" {
		args = append(args, "--egress", p.Egress)
	}
	if p.Kubelet {
		args = append(args, "--kubelet")
	}
	return p.do(args...)
}

// Replay starts etcd and an API server with the objects of a report.
func (p *Plane) Replay(archive string) error { return p.do("up", "--from", archive) }

// Down ends the control plane.
func (p *Plane) Down() error { return p.do("down") }

// Kill ends a component with SIGKILL.
func (p *Plane) Kill(component string) error { return p.do("kill", component) }

// Restart restarts a component and returns when it is ready.
func (p *Plane) Restart(component string, flags ...string) error {
	return p.do(append([]string{"restart", component}, flags...)...)
}

// do runs lockstep-local. Its output goes to a file, not a pipe: a pipe would stay open
// as long as any component runs.
func (p *Plane) do(args ...string) error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args = append(args, "--dir", p.Dir)
	fmt.Fprintf(log, "$ lockstep-local %s\n", strings.Join(args, " "))
	cmd := exec.Command(p.Program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("lockstep-local %s: %w\n%s", strings.Join(args, " "), err, LastLines(p.Log, 20))
	}
	return nil
}

// FreePorts returns ports on 127.0.0.1 without a listener. They are below the kernel's range
// of outgoing ports, so that no outgoing connection takes one.
func FreePorts(n int) ([]int, error) {
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

// Front stands where the API server calls webhooks, as a Service does: it joins each connection to one of some ports.
type Front struct {
	net.Listener

	mu    sync.Mutex
	ports []int
	calls int
}

// NewFront listens at a port of the loopback interface, and forwards to others.
func NewFront(port int, to ...int) (*Front, error) {
	listener, err := net.Listen("tcp", address(port))
	if err != nil {
		return nil, err
	}
	f := &Front{Listener: listener, ports: to}
	go Forward(listener, func() (net.Conn, error) { return net.Dial("tcp", address(f.next())) })
	return f, nil
}

// To changes where later connections are forwarded to.
func (f *Front) To(ports ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ports = ports
}

// Forward joins each connection of a listener to one that dial makes.
func Forward(from net.Listener, dial func() (net.Conn, error)) {
	for {
		near, err := from.Accept()
		if err != nil {
			return
		}
		go func() {
			far, err := dial()
			if err != nil {
				_ = near.Close()
				return
			}
			Join(near, far)
		}()
	}
}

// next returns the ports in turn.
func (f *Front) next() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.ports[f.calls%len(f.ports)]
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Tunnel answers one CONNECT request, as of an API server with an egress, by joining it to an address.
func Tunnel(w http.ResponseWriter, r *http.Request, address string) {
	far, err := net.Dial("tcp", address)
	if r.Method != http.MethodConnect || err != nil {
		http.Error(w, errors.Join(errors.New(r.Method), err).Error(), http.StatusBadGateway)
		return
	}
	near, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = far.Close()
		return
	}
	if _, err := io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		_ = near.Close()
		_ = far.Close()
		return
	}
	Join(near, far)
}

// Join copies in both directions until either side ends.
func Join(near, far net.Conn) {
	var once sync.Once
	end := func() { _, _ = near.Close(), far.Close() }
	go func() { _, _ = io.Copy(near, far); once.Do(end) }()
	_, _ = io.Copy(far, near)
	once.Do(end)
}
