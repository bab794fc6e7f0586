package install

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep.dev/lockstep/internal/operator"
)

func TestTheConfigurationOfAnotherImplementation(t *testing.T) {
	for name, tt := range map[string]struct {
		text, kept string
		dropped    []string
	}{
		"as it is": {
			header + "leaderElection: {leaderElect: true}\ninternalCertManagement: {enable: true}\n", "leaderElect: true", nil,
		},
		"of the next version": {
			"apiVersion: config.lws.x-k8s.io/v1\nkind: Configuration\nclientConnection: {qps: 50}\nfeatureGates: {WorkloadAwareScheduling: true}\n", "WorkloadAwareScheduling: true", nil,
		},
		"with what this version lacks": {
			header + "gangSchedulingManagement: {schedulerProvider: volcano}\nwebhook: {port: 9444, speed: 3}\nfeatureGates: {Unheard: true}\n" +
				"internalCertManagement: {enable: false}\n",
			"schedulerProvider: volcano",
			[]string{"featureGates.Unheard", "internalCertManagement.enable", "webhook.port", "webhook.speed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			config, dropped, err := applicable(tt.text)
			if err != nil || !strings.Contains(string(config), tt.kept) {
				t.Fatalf("%v, kept:\n%s", err, config)
			}
			if diff := cmp.Diff(tt.dropped, dropped); diff != "" {
				t.Errorf("left out (-want +got)\n%s", diff)
			}
			c, err := operator.ParseConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			if faults := operator.ValidateConfig(c); len(faults) > 0 || len(unfit(c)) > 0 {
				t.Errorf("what is kept is refused: %v, %v", faults, unfit(c))
			}
		})
	}
	for _, text := range []string{"{", "apiVersion: v1\nkind: ConfigMap\n"} {
		if _, _, err := applicable(text); err == nil {
			t.Errorf("%q is taken over", text)
		}
	}
}
