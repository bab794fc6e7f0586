package plane

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestArgumentsCarrySettings(t *testing.T) {
	settings := Settings{
		Audit: true, ControllerQPS: 25,
		FeatureGates:     map[string]bool{"B": false, "A": true},
		DisableAdmission: []string{"Priority", "PodSecurity"},
		RuntimeConfig:    []string{"g/v1/a=true", "g/v1/b=false"},
		Controllers:      []string{"*", "-job-controller"},
	}
	const gates = "--feature-gates=A=true,B=false"
	for component, want := range map[Component][]string{
		Etcd:              {"--unsafe-no-fsync", "--client-cert-auth", "--peer-client-cert-auth", "--data-dir=/c/control-plane/etcd"},
		APIServer:         {"--secure-port=21000", "--disable-admission-plugins=Priority,PodSecurity", "--audit-log-path=/c/audit.log", "--runtime-config=g/v1/a=true,g/v1/b=false", gates},
		ControllerManager: {"--kube-api-qps=25", "--kube-api-burst=38", "--controllers=*,-job-controller", "--leader-elect=false", gates},
		Scheduler:         {"--config=/c/control-plane/config/scheduler.yaml", gates},
		Kwok:              {"--node-lease-duration-seconds=40", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"},
	} {
		got := Arguments(component, settings, portsFrom(21000), Layout{Dir: "/c"})
		if got[0] != string(component) {
			t.Errorf("%s has the name %q in its arguments", component, got[0])
		}
		for _, argument := range want {
			if !slices.Contains(got, argument) {
				t.Errorf("%s lacks %q:\n%s", component, argument, strings.Join(got, "\n"))
			}
		}
	}
}

func TestGangsNeedTheirAPI(t *testing.T) {
	for name, tt := range map[string]struct {
		on   bool
		said []string
		want string
	}{
		"the gate":                  {true, []string{"g/v1/a=false"}, "--runtime-config=g/v1/a=false,scheduling.k8s.io/v1beta1=true"},
		"the gate, and the API off": {true, []string{"scheduling.k8s.io/v1beta1=false"}, "--runtime-config=scheduling.k8s.io/v1beta1=false"},
		"no gate":                   {false, []string{"g/v1/a=false"}, "--runtime-config=g/v1/a=false"},
	} {
		settings := Settings{FeatureGates: map[string]bool{"GenericWorkload": tt.on}, RuntimeConfig: tt.said}
		if got := Arguments(APIServer, settings, portsFrom(21000), Layout{Dir: "/c"}); !slices.Contains(got, tt.want) {
			t.Errorf("%s: lacks %q: %q", name, tt.want, got)
		}
	}
}

func TestArgumentsOfAStockCluster(t *testing.T) {
	for _, component := range Components {
		for _, argument := range Arguments(component, DefaultSettings(), portsFrom(21000), Layout{Dir: "/c"}) {
			for _, absent := range []string{"--feature-gates", "--audit", "--disable-admission", "--runtime-config"} {
				if strings.HasPrefix(argument, absent) {
					t.Errorf("%s has %q by default", component, argument)
				}
			}
			if strings.Contains(argument, "0.0.0.0") {
				t.Errorf("%s listens on every address: %q", component, argument)
			}
		}
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
