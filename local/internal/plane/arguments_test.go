package plane

import (
	"slices"
	"strings"
	"testing"
)

func TestArgumentsCarrySettings(t *testing.T) {
	settings := Settings{
		Audit: true, ControllerQPS: 25,
		FeatureGates:     map[string]bool{"B": false, "A": true},
		DisableAdmission: []string{"Priority", "PodSecurity"},
		Controllers:      []string{"*", "-job-controller"},
	}
	const gates = "--feature-gates=A=true,B=false"
	for component, want := range map[Component][]string{
		Etcd:              {"--unsafe-no-fsync", "--client-cert-auth", "--peer-client-cert-auth", "--data-dir=/c/control-plane/etcd"},
		APIServer:         {"--secure-port=21000", "--disable-admission-plugins=Priority,PodSecurity", "--audit-log-path=/c/audit.log", gates},
		ControllerManager: {"--kube-api-qps=25", "--kube-api-burst=38", "--controllers=*,-job-controller", "--leader-elect=false", gates},
		Scheduler:         {"--config=/c/control-plane/config/scheduler.yaml", gates},
		Kwok:              {"--node-lease-duration-seconds=40", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"},
	} {
		got := Arguments(component, settings, portsFrom(21000), Layout{Dir: "/c"})
		if got[0] != string(component) {
			t.Errorf("%s is called by the name %q", component, got[0])
		}
		for _, argument := range want {
			if !slices.Contains(got, argument) {
				t.Errorf("%s lacks %q:\n%s", component, argument, strings.Join(got, "\n"))
			}
		}
	}
}

func TestArgumentsOfAStockCluster(t *testing.T) {
	for _, component := range Components {
		for _, argument := range Arguments(component, DefaultSettings(), portsFrom(21000), Layout{Dir: "/c"}) {
			for _, absent := range []string{"--feature-gates", "--audit", "--disable-admission"} {
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

func TestBurst(t *testing.T) {
	for qps, want := range map[int]int{1: 2, 20: 30, 25: 38, 200: 300} {
		if got := burst(qps); got != want {
			t.Errorf("burst(%d) = %d, want %d", qps, got, want)
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
