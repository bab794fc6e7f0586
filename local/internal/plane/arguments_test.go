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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/test/expect"
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
		expect.OK(t, os.WriteFile("testdata/arguments.txt", []byte(got.String()), 0o600))
	}
	want := expect.Value(os.ReadFile("testdata/arguments.txt"))(t)
	expect.Equal(t, string(want), got.String())
}

func TestSchedulerIsNotSlowerThanTheControllers(t *testing.T) {
	for qps, want := range map[int]string{20: "qps: 50\n  burst: 100\n", 300: "qps: 300\n  burst: 600\n"} {
		expect.Says(t, schedulerConfiguration(Layout{Dir: "/c"}, Settings{ControllerQPS: qps}), want, qps)
	}
}

func TestPlanPortsAvoidsTakenPorts(t *testing.T) {
	taken := func(port int) bool { return port%7 == 0 } // one block in seven is free
	ports := expect.Value(planPorts(func(port int) bool { return !taken(port) }))(t)
	seen := map[int]bool{}
	for _, c := range Components {
		port := ports.of(c)
		expect.That(t, port >= lowestPort && port < highestPort && !taken(port) && !seen[port], "%s listens on %d", c, port)
		seen[port] = true
	}
	_, err := planPorts(func(int) bool { return false })
	expect.That(t, err != nil, "no error without free ports")
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
	expect.That(t, errors.Is(err, real), "error %v, want %v", err, real)
}

func TestSimulatedNodesDiffer(t *testing.T) {
	names, addresses, racks := map[string]bool{}, map[string]bool{}, map[string]string{}
	for i := range 600 {
		node := simulatedNode(i, 0)
		names[node.Name] = true
		addresses[node.Status.Addresses[0].Address] = true
		expect.Equalf(t, node.Name, node.Labels[corev1.LabelHostname], "the host name label")
		expect.That(t, node.Annotations[simulatedKey] == simulatedValue, "%s lacks kwok's annotation", node.Name)
		rack, zone := node.Labels[RackLabel], node.Labels[corev1.LabelTopologyZone]
		before, ok := racks[rack]
		expect.That(t, !ok || before == zone, "rack %s is in %s and in %s", rack, before, zone)
		racks[rack] = zone
	}
	expect.That(t, len(names) == 600 && len(addresses) == 600 && len(racks) == 600/nodesPerRack,
		"%d names, %d addresses, %d racks", len(names), len(addresses), len(racks))
}

func TestTakesPods(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"as created":   {func(*corev1.Node) {}, true},
		"tainted":      {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady}} }, false},
		"not ready":    {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
		"no condition": {func(n *corev1.Node) { n.Status.Conditions = nil }, false},
	} {
		node := simulatedNode(0, 0)
		c.change(node)
		expect.Equalf(t, c.want, takesPods(node), "%s: takesPods()", name)
	}
}

// A new kwok process must finish the deletions of the old one, and must not touch pods that a test
// keeps terminating.
func TestOnlyPodsWithANextStepAreReplayed(t *testing.T) {
	now := metav1.Now()
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-000"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		change(p)
		return p
	}
	terminating := func(change func(*corev1.Pod)) *corev1.Pod {
		return pod(func(p *corev1.Pod) { p.DeletionTimestamp = &now; change(p) })
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"runs":           {pod(func(*corev1.Pod) {}), false},
		"starts":         {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), true},
		"is unscheduled": {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending; p.Spec.NodeName = "" }), false},
		"ends":           {terminating(func(*corev1.Pod) {}), true},
		"is held":        {terminating(func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} }), false},
		"hangs":          {terminating(func(p *corev1.Pod) { p.Annotations = map[string]string{hangOnDelete: "true"} }), false},
		"ends slowly":    {terminating(func(p *corev1.Pod) { p.Annotations = map[string]string{vanishAfter: "5s"} }), false},
	} {
		expect.Equalf(t, test.want, owedStep(test.pod), "a pod that %s", name)
	}
}
