package plane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

// Loopback is the only address that anything here listens on.
const Loopback = "127.0.0.1"

// Ports are the listeners of one cluster.
type Ports struct {
	APIServer         int `json:"kubeAPIServer"`
	EtcdClient        int `json:"etcdClient"`
	EtcdPeer          int `json:"etcdPeer"`
	ControllerManager int `json:"kubeControllerManager"`
	Scheduler         int `json:"kubeScheduler"`
	Kwok              int `json:"kwok"`
}

// portCount is how many consecutive ports a cluster takes.
const portCount = 6

// Ports that nobody asked for are drawn from here: below the range from which
// the kernel takes the ports of outgoing connections, so that a component that
// is killed finds its port free when it comes back.
const lowestPort, highestPort = 20000, 30000

// portsFrom lays a cluster out on consecutive ports.
func portsFrom(base int) Ports {
	return Ports{base, base + 1, base + 2, base + 3, base + 4, base + 5}
}

// listener is one port and what it is for.
type listener struct {
	port int
	use  string
}

func (p Ports) listeners() []listener {
	return []listener{
		{p.APIServer, "kube-apiserver"}, {p.EtcdClient, "etcd clients"}, {p.EtcdPeer, "etcd peers"},
		{p.ControllerManager, "kube-controller-manager"}, {p.Scheduler, "kube-scheduler"}, {p.Kwok, "kwok"},
	}
}

// of is the port that a component is spoken to on.
func (p Ports) of(c Component) int {
	return map[Component]int{
		Etcd: p.EtcdClient, APIServer: p.APIServer, ControllerManager: p.ControllerManager, Scheduler: p.Scheduler, Kwok: p.Kwok,
	}[c]
}

// PlanPorts lays out the ports from base, or, with base 0, from the first
// block that is free. free tells whether a port can be listened on.
func PlanPorts(base int, free func(port int) bool) (Ports, error) {
	if base == 0 {
		return anyPorts(rand.IntN(highestPort-lowestPort-portCount), free)
	}
	if err := checkBase(base); err != nil {
		return Ports{}, err
	}
	ports := portsFrom(base)
	if taken := ports.taken(free); len(taken) > 0 {
		return Ports{}, fmt.Errorf("--port %d: taken on %s: %s: end what listens there, or give another --port",
			base, Loopback, strings.Join(taken, ", "))
	}
	return ports, nil
}

// checkBase refuses a first port after which there is no room. 0 asks for any.
func checkBase(base int) error {
	if base != 0 && (base < 1024 || base > 65536-portCount) {
		return fmt.Errorf("--port %d: give a port from 1024 to %d, the first of %d in a row", base, 65536-portCount, portCount)
	}
	return nil
}

// anyPorts begins its search at an offset of the caller's, so that clusters
// that start at the same time do not all try the same block.
func anyPorts(offset int, free func(int) bool) (Ports, error) {
	const span = highestPort - lowestPort - portCount
	for step := 0; step < span; step += portCount {
		ports := portsFrom(lowestPort + (offset+step)%span)
		if len(ports.taken(free)) == 0 {
			return ports, nil
		}
	}
	return Ports{}, fmt.Errorf("no %d free ports in a row between %d and %d: give some with --port", portCount, lowestPort, highestPort)
}

func (p Ports) taken(free func(int) bool) []string {
	var taken []string
	for _, l := range p.listeners() {
		if !free(l.port) {
			taken = append(taken, fmt.Sprintf("%d (for %s)", l.port, l.use))
		}
	}
	return taken
}

// PortFree tells whether nobody listens on the loopback port. It listens there
// for a moment itself, because only that finds listeners of every kind.
func PortFree(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func address(port int) string {
	return net.JoinHostPort(Loopback, strconv.Itoa(port))
}
