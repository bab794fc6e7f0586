package plane

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/arguments.txt")

// TestArguments keeps the arguments of each component in testdata: by default, with all settings, and with the feature gate
// whose API is off by default. No component listens on every address.
func TestArguments(t *testing.T) {
	all := Settings{
		Audit: true, ControllerQPS: 25,
		FeatureGates:     map[string]bool{"B": false, "A": true},
		DisableAdmission: []string{"Priority", "PodSecurity"},
		RuntimeConfig:    []string{"g/v1/a=true", "g/v1/b=false"},
		Controllers:      []string{"*", "-job-controller"},
	}
	gangs := DefaultSettings()
	gangs.FeatureGates, gangs.RuntimeConfig = map[string]bool{gangGate: true}, []string{"g/v1/a=false"}
	without := gangs
	without.RuntimeConfig = []string{gangAPI + "=false"}
	var got strings.Builder
	for _, of := range []struct {
		name string
		Settings
	}{{"defaults", DefaultSettings()}, {"all settings", all}, {"gangs", gangs}, {"gangs without their API", without}} {
		for _, component := range Components {
			fmt.Fprintf(&got, "%s: %s\n", of.name, strings.Join(Arguments(component, of.Settings, portsFrom(21000), Layout{Dir: "/c"}), "\n  "))
		}
	}
	if *update {
		must(t, os.WriteFile("testdata/arguments.txt", []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile("testdata/arguments.txt")
	must(t, err)
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSchedulerIsNotSlowerThanTheControllers(t *testing.T) {
	for qps, want := range map[int]string{20: "qps: 50\n  burst: 100\n", 300: "qps: 300\n  burst: 600\n"} {
		if got := schedulerConfiguration(Layout{Dir: "/c"}, Settings{ControllerQPS: qps}); !strings.Contains(got, want) {
			t.Errorf("with %d queries/s for the controllers:\n%s\nwant %q in it", qps, got, want)
		}
	}
}

func TestPlanPortsAvoidsTakenPorts(t *testing.T) {
	taken := func(port int) bool { return port%7 == 0 } // one block in seven is free
	ports, err := planPorts(func(port int) bool { return !taken(port) })
	must(t, err)
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

// answering probes component c at a server that always gives one answer.
func answering(t *testing.T, c Component, code int, body string) error {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		w.Write([]byte(body))
	}))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	p := &prober{client: server.Client(), ports: Ports{APIServer: port, EtcdClient: port, ControllerManager: port, Scheduler: port}}
	return p.probe(context.Background(), c)
}

func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		component Component
		code      int
		body      string
		says      string // empty: ready
	}{
		"ready":                     {APIServer, 200, "ok", ""},
		"names the failed check":    {APIServer, 500, "[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok", "[-]etcd failed"},
		"not ready, without checks": {Scheduler, 503, "starting", "starting"},
		"controllers not started":   {ControllerManager, 200, "[+]ping ok\nhealthz check passed\n", "have not begun"},
		"controllers started":       {ControllerManager, 200, "[+]job-controller ok\nhealthz check passed\n", ""},
		"an error without a body":   {Etcd, 500, "", "500"},
	} {
		err := answering(t, c.component, c.code, c.body)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: error %v, want one that says %q", name, err, c.says)
		}
	}
}

func TestUntilReturnsTheLastErrorBeforeCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	real := errors.New("3 of 5 nodes are ready")
	asked := 0
	err := until(ctx, func(ctx context.Context) error {
		asked++
		if asked == 2 {
			cancel()
			return ctx.Err()
		}
		return real
	})
	if !errors.Is(err, real) {
		t.Errorf("error %v, want %v", err, real)
	}
}
