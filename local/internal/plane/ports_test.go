package plane

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// freeBut is a machine on which only these ports are taken.
func freeBut(taken ...int) func(int) bool {
	return func(port int) bool {
		for _, t := range taken {
			if port == t {
				return false
			}
		}
		return true
	}
}

func TestPlanPortsFromBase(t *testing.T) {
	got, err := PlanPorts(21000, freeBut())
	if err != nil {
		t.Fatal(err)
	}
	want := Ports{APIServer: 21000, EtcdClient: 21001, EtcdPeer: 21002, ControllerManager: 21003, Scheduler: 21004, Kwok: 21005}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlanPortsRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		base  int
		taken []int
		says  []string
	}{
		"taken":             {21000, []int{21001, 21005}, []string{"--port 21000", "21001 (for etcd clients)", "21005 (for kwok)", "another --port"}},
		"privileged":        {80, nil, []string{"--port 80", "from 1024"}},
		"negative":          {-1, nil, []string{"--port -1"}},
		"no room above":     {65531, nil, []string{"to 65530"}},
		"not a port at all": {70000, nil, []string{"--port 70000"}},
	} {
		_, err := PlanPorts(c.base, freeBut(c.taken...))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
}

func TestHighestBaseFits(t *testing.T) {
	ports, err := PlanPorts(65530, freeBut())
	if err != nil {
		t.Fatal(err)
	}
	if ports.Kwok != 65535 {
		t.Errorf("last port %d, want 65535", ports.Kwok)
	}
}

func TestAnyPortsGoesAroundWhatIsTaken(t *testing.T) {
	ports, err := anyPorts(0, freeBut(lowestPort+3))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ports.APIServer, lowestPort+portCount; got != want {
		t.Errorf("first port %d, want %d", got, want)
	}
	for offset := range highestPort - lowestPort - portCount {
		ports, err := anyPorts(offset, freeBut())
		if err != nil || ports.APIServer < lowestPort || ports.Kwok >= highestPort {
			t.Fatalf("offset %d: %+v, %v; want ports from %d to %d", offset, ports, err, lowestPort, highestPort)
		}
	}
	if _, err := anyPorts(7, func(int) bool { return false }); err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("error %v where nothing is free, want one that names --port", err)
	}
}

func TestPortFree(t *testing.T) {
	l, err := net.Listen("tcp", Loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if PortFree(port) {
		t.Errorf("port %d counts as free while somebody listens", port)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if !PortFree(port) {
		t.Errorf("port %d counts as taken after its listener is gone", port)
	}
}

func TestListenersAreTheComponentsPorts(t *testing.T) {
	ports := portsFrom(21000)
	listened := map[int]bool{}
	for _, l := range ports.listeners() {
		listened[l.port] = true
	}
	if len(listened) != portCount {
		t.Errorf("%d listeners, want %d", len(listened), portCount)
	}
	for _, c := range Components {
		if !listened[ports.of(c)] {
			t.Errorf("%s is spoken to on %d, where nobody listens", c, ports.of(c))
		}
	}
}

func TestUpRefusesAPortBeforeItMakesTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	cluster := &Cluster{Layout: Layout{Dir: dir}}
	if err := cluster.Up(t.Context(), DefaultSettings(), 70000); err == nil || !strings.Contains(err.Error(), "--port 70000") {
		t.Fatalf("got error %v, want one that names --port 70000", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was made all the same: %v", err)
	}
}
