package operator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"lockstep.dev/lockstep/api/config/v1alpha1"
)

const header = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFileIsReadAndTheRestDefaulted(t *testing.T) {
	got, err := LoadConfig(write(t, header+`
webhook: {port: 1234, host: h}
leaderElection: {leaderElect: false, leaseDuration: 1m, resourceNamespace: ignored}
metrics: {bindAddress: "0"}
tls: {minVersion: VersionTLS12, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}
internalCertManagement: {enable: false}
clientConnection: {qps: 7.5}
`))
	if err != nil {
		t.Fatal(err)
	}
	want, err := LoadConfig("")
	if err != nil {
		t.Fatal(err)
	}
	want.APIVersion, want.Kind = "config.lws.x-k8s.io/v1alpha1", "Configuration"
	want.Webhook.Port, want.Webhook.Host = new(int32(1234)), "h"
	want.LeaderElection.LeaderElect, want.LeaderElection.ResourceNamespace = new(false), "ignored"
	want.LeaderElection.LeaseDuration.Duration = time.Minute
	want.Metrics.BindAddress = "0"
	want.TLS = &v1alpha1.TLS{MinVersion: "VersionTLS12", CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}}
	want.InternalCertManagement.Enable = new(false)
	want.ClientConnection.QPS = new(float32(7.5))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if faults := ValidateConfig(got); len(faults) > 0 {
		t.Errorf("refused: %v", faults)
	}
}

func TestDefaultsAreThoseOfTheContract(t *testing.T) {
	c, err := LoadConfig("")
	if err != nil {
		t.Fatal(err)
	}
	got := []any{
		*c.Webhook.Port, c.Webhook.CertDir, c.Webhook.Host, *c.LeaderElection.LeaderElect, c.LeaderElection.LeaseDuration.Duration.String(),
		c.LeaderElection.RenewDeadline.Duration.String(), c.LeaderElection.RetryPeriod.Duration.String(), c.LeaderElection.ResourceLock, c.LeaderElection.ResourceName,
		c.Metrics.BindAddress, c.Health.HealthProbeBindAddress, c.Health.ReadinessEndpointName, c.Health.LivenessEndpointName,
		*c.InternalCertManagement.Enable, *c.InternalCertManagement.WebhookServiceName, *c.InternalCertManagement.WebhookSecretName,
		*c.ClientConnection.QPS, *c.ClientConnection.Burst, c.TLS == nil, c.GangSchedulingManagement == nil,
	}
	want := []any{
		int32(9443), "/tmp/k8s-webhook-server/serving-certs", "", true, "15s", "10s", "2s", "leases", "b8b2488c.x-k8s.io",
		":8443", ":8081", "/readyz", "/healthz", true, "lws-webhook-service", "lws-webhook-server-cert",
		float32(500), int32(500), true, true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if faults := ValidateConfig(c); len(faults) > 0 {
		t.Errorf("the defaults are refused: %v", faults)
	}
}

func TestUnreadableFilesSayWhere(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown field":   {header + "webhook: {prot: 1}", `unknown field "webhook.prot"`},
		"unknown block":   {header + "webhok: {}", `unknown field "webhok"`},
		"field twice":     {header + "webhook:\n  port: 1\n  port: 2\n", `key "port" already set in map`},
		"wrong type":      {header + "webhook: {port: x}", `webhook.port of type int32`},
		"wrong duration":  {header + "leaderElection: {leaseDuration: 5 parsecs}", `5 parsecs`},
		"no kind":         {"webhook: {port: 1}", "wants apiVersion: config.lws.x-k8s.io/v1alpha1 and kind: Configuration"},
		"another kind":    {"apiVersion: v1\nkind: Pod", "wants apiVersion: config.lws.x-k8s.io/v1alpha1 and kind: Configuration"},
		"another version": {"apiVersion: config.lws.x-k8s.io/v9\nkind: Configuration", "wants apiVersion: config.lws.x-k8s.io/v1alpha1 and kind: Configuration"},
		"no YAML":         {"{", "config.yaml"},
		"nothing at all":  {"", "wants apiVersion"},
	} {
		_, err := LoadConfig(write(t, c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "config.yaml") {
			t.Errorf("%s: got %v, want %q and the name of the file", name, err, c.want)
		}
	}
	if _, err := LoadConfig("/does/not/exist"); err == nil {
		t.Error("a missing file went unnoticed")
	}
}

func TestFaultsNameTheirField(t *testing.T) {
	for text, want := range map[string]string{
		"webhook: {port: 0}":                                                      "webhook.port: Invalid value: 0: must be between 1 and 65535",
		"leaderElection: {resourceLock: endpoints}":                               `leaderElection.resourceLock: Unsupported value: "endpoints": supported values: "leases"`,
		"leaderElection: {resourceName: 'A B'}":                                   `leaderElection.resourceName: Invalid value: "A B": `,
		"leaderElection: {leaseDuration: 9ms}":                                    `leaderElection.leaseDuration: Invalid value: "9ms": must be 1s at least`,
		"leaderElection: {leaseDuration: 10s}":                                    `leaderElection.leaseDuration: Invalid value: "10s": must be longer than renewDeadline, 10s`,
		"leaderElection: {renewDeadline: 2s}":                                     `leaderElection.renewDeadline: Invalid value: "2s": must be longer than 1.2 times retryPeriod, 2.4s`,
		"leaderElection: {retryPeriod: -1s}":                                      `leaderElection.retryPeriod: Invalid value: "-1s": must be greater than 0`,
		"metrics: {bindAddress: '8443'}":                                          `metrics.bindAddress: Invalid value: "8443": must be host:port, :port, or "0" for off`,
		"health: {healthProbeBindAddress: ':x'}":                                  `health.healthProbeBindAddress: Invalid value: ":x": must be`,
		"health: {readinessEndpointName: ready}":                                  `health.readinessEndpointName: Invalid value: "ready": must begin with /`,
		"health: {readinessEndpointName: /healthz}":                               `health.livenessEndpointName: Duplicate value: "/healthz"`,
		"tls: {minVersion: VersionTLS11}":                                         `tls.minVersion: Invalid value: "VersionTLS11": invalid minVersion. Please use VersionTLS12 or VersionTLS13`,
		"tls: {cipherSuites: [X]}":                                                `tls.cipherSuites: Invalid value: ["X"]: `,
		"tls: {minVersion: VersionTLS13, cipherSuites: [TLS_AES_128_GCM_SHA256]}": `cipher suites may not be specified when minVersion is 'VersionTLS13'`,
		"internalCertManagement: {webhookServiceName: A}":                         `internalCertManagement.webhookServiceName: Invalid value: "A": `,
		"internalCertManagement: {webhookSecretName: A}":                          `internalCertManagement.webhookSecretName: Invalid value: "A": `,
		"gangSchedulingManagement: {}":                                            `schedulerProvider: Required value: must be set when gang scheduling is enabled`,
		"gangSchedulingManagement: {schedulerProvider: x}":                        `schedulerProvider: Unsupported value: "x": supported values: "volcano"`,
		"clientConnection: {qps: 0}":                                              "clientConnection.qps: Invalid value: 0: must be greater than 0",
		"clientConnection: {burst: -1}":                                           "clientConnection.burst: Invalid value: -1: must be greater than 0",
	} {
		c, err := LoadConfig(write(t, header+text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		faults := ValidateConfig(c)
		if len(faults) == 0 || !strings.Contains(faults.ToAggregate().Error(), want) {
			t.Errorf("%s: got %v, want %q", text, faults, want)
		}
	}
}

func TestFlagBeatsFileBeatsDefault(t *testing.T) {
	file := write(t, header+"webhook: {port: 1000, host: file}\nclientConnection: {qps: 1, burst: 2}\nleaderElection: {leaderElect: false, retryPeriod: 1s}\nmetrics: {bindAddress: ':1'}")
	f := newFlags()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.register(fs)
	args := []string{"--config", file, "--webhook-port", "2000", "--kube-api-qps", "500", "--leader-elect", "--metrics-bind-address=:8443", "--leader-elect-retry-period=3s"}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	o, err := f.options(fs)
	if err != nil {
		t.Fatal(err)
	}
	c := o.Config
	got := []any{
		*c.Webhook.Port, c.Webhook.Host, *c.ClientConnection.QPS, *c.ClientConnection.Burst, *c.LeaderElection.LeaderElect,
		c.LeaderElection.RetryPeriod.Duration.String(), c.Metrics.BindAddress, c.Health.HealthProbeBindAddress,
	}
	// Flags given with their default value are given all the same.
	want := []any{int32(2000), "file", float32(500), int32(2), true, "3s", ":8443", ":8081"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A flag that is registered and forgotten would be accepted and do nothing.
func TestEveryFlagOfTheConfigurationOverridesIt(t *testing.T) {
	f := newFlags()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.register(fs)
	for flag, value := range map[string]string{
		"webhook-port": "1", "webhook-host": "h", "metrics-bind-address": ":2", "health-probe-bind-address": ":3",
		"kube-api-qps": "4", "kube-api-burst": "5", "leader-elect": "false", "leader-elect-lease-duration": "6s",
		"leader-elect-renew-deadline": "7s", "leader-elect-retry-period": "8s", "leader-elect-resource-lock": "l", "leader-elect-resource-name": "n",
	} {
		before, err := f.options(fs)
		if err != nil {
			t.Fatal(err)
		}
		if err := fs.Set(flag, value); err != nil {
			t.Fatal(err)
		}
		after, err := f.options(fs)
		if err != nil {
			t.Fatal(err)
		}
		if cmp.Equal(before.Config, after.Config) {
			t.Errorf("--%s=%s changes nothing", flag, value)
		}
	}
}
