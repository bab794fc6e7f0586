package plane

import (
	"net"
	"testing"
)

func TestPlanPortsGoesAroundTakenPorts(t *testing.T) {
	taken := func(port int) bool { return port%7 == 0 } // one block in seven is free
	ports, err := planPorts(func(port int) bool { return !taken(port) })
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, c := range Components {
		port := ports.of(c)
		if port < lowestPort || port >= highestPort || taken(port) || seen[port] {
			t.Errorf("%s listens on %d", c, port)
		}
		seen[port] = true
	}
	if _, err := planPorts(func(int) bool { return false }); err == nil {
		t.Error("no error without free ports")
	}
}

func TestPortFree(t *testing.T) {
	l, err := net.Listen("tcp", Loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if portFree(port) {
		t.Errorf("port %d counts as free while it has a listener", port)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if !portFree(port) {
		t.Errorf("port %d counts as taken after its listener is gone", port)
	}
}
