package plane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
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

// Ports are drawn from here: below the range from which
// the kernel takes the ports of outgoing connections, so that a component that
// is killed finds its port free when it comes back.
const lowestPort, highestPort = 20000, 30000

// portsFrom lays a cluster out on consecutive ports.
func portsFrom(base int) Ports {
	return Ports{base, base + 1, base + 2, base + 3, base + 4, base + 5}
}

// of is the port that a component is spoken to on.
func (p Ports) of(c Component) int {
	return map[Component]int{
		Etcd: p.EtcdClient, APIServer: p.APIServer, ControllerManager: p.ControllerManager, Scheduler: p.Scheduler, Kwok: p.Kwok,
	}[c]
}

// planPorts returns the first block of free ports after a random one: clusters that
// start at the same time do not all try the same block.
func planPorts(free func(port int) bool) (Ports, error) {
	const span = highestPort - lowestPort - portCount
	offset := rand.IntN(span)
	for step := 0; step < span; step += portCount {
		if base := lowestPort + (offset+step)%span; blockFree(base, free) {
			return portsFrom(base), nil
		}
	}
	return Ports{}, fmt.Errorf("no %d free ports in a row between %d and %d", portCount, lowestPort, highestPort)
}

func blockFree(base int, free func(int) bool) bool {
	for port := base; port < base+portCount; port++ {
		if !free(port) {
			return false
		}
	}
	return true
}

// portFree listens on a loopback port for a moment: only that finds listeners of every kind.
func portFree(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func address(port int) string {
	return net.JoinHostPort(Loopback, strconv.Itoa(port))
}
