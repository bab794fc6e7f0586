package operator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/version"
	"lockstep.dev/lockstep/test/expect"
)

func parse(t *testing.T, args ...string) Options {
	t.Helper()
	f := newFlags()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.register(fs)
	expect.OK(t, fs.Parse(args))
	o := expect.Value(f.options(fs))(t)
	o.REST = &rest.Config{Host: "https://nowhere.invalid"}
	return o
}

func TestErrorsNameTheFileAndTheField(t *testing.T) {
	file := write(t, header+"protection: {kinds: [{apiVersion: a/v1, kind: A, podTemplates: [spec..x]}]}")
	o := parse(t, "--config="+file)
	err := o.validate()
	for _, want := range []string{file, "protection.kinds[0].podTemplates[0]", "spec.jobs.*.template"} {
		expect.ErrorSays(t, err, want)
	}
}

// Each line of flags of the file is followed by their fault, or by nothing.
func TestNotEverythingCanBeSwitchedOff(t *testing.T) {
	lines := strings.Split(string(must(os.ReadFile("testdata/flags.txt"))), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		args, want := lines[i], strings.TrimSpace(lines[i+1])
		o := parse(t, strings.Fields(args)...)
		err := o.validate()
		expect.That(t, (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want)),
			"%s: got %v, want %q", args, err, want)
	}
}

// What follows from flags, and from the environment.
func TestFlagsHaveConsequences(t *testing.T) {
	competes := func(o Options) any { return must(o.lease()) != nil }
	pprof := func(o Options) any { return o.Pprof }
	webhooks := func(o Options) any { return o.Webhooks }
	gangs := func(o Options) any {
		return *ptr.Deref(o.Config.GangSchedulingManagement, v1alpha1.GangSchedulingManagement{SchedulerProvider: new("")}).SchedulerProvider
	}
	dir := func(o Options) any {
		files := o
		files.Config.InternalCertManagement.Enable = new(false)
		return [2]string{o.certDir(), files.certDir()}
	}
	for _, tt := range []struct {
		environment, args string
		of                func(Options) any
		want              any
	}{
		{"", "", webhooks, true},
		{"false", "", webhooks, false},
		{"false", "--webhooks", webhooks, true},
		{"", "", competes, true},
		{"", "--leader-elect=false", competes, false},
		{"", "--controllers=", competes, false},
		{"", "--webhooks=false", competes, true},
		{"", "--protect-only", competes, true},
		{"", "--controllers=protection --protection=false", competes, false},
		{"", "", pprof, "0"},
		{"", "--pprof-bind-address=0", pprof, "0"},
		{"", "--pprof-bind-address=[::1]:1", pprof, "[::1]:1"},
		{"", "", gangs, ""},
		{"", "--gang-scheduler=", gangs, ""},
		{"", "--gang-scheduler=volcano", gangs, "volcano"},
		{"", "", dir, [2]string{"", "/tmp/k8s-webhook-server/serving-certs"}},
		{"", "--webhook-cert-dir=d", dir, [2]string{"d", "d"}},
	} {
		t.Setenv("ENABLE_WEBHOOKS", tt.environment)
		expect.Equalf(t, tt.want, tt.of(parse(t, strings.Fields(tt.args)...)), "%q with ENABLE_WEBHOOKS=%q", tt.args, tt.environment)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestClientHasUserAgentAndRate(t *testing.T) {
	o := parse(t, "--kube-api-qps=7", "--kube-api-burst=8")
	c := o.restConfig()
	expect.That(t, c.UserAgent == "lockstep/"+version.Get().Version && c.QPS == 7 && c.Burst == 8,
		"got %q, %v, %d", c.UserAgent, c.QPS, c.Burst)
	expect.Equalf(t, "", o.REST.UserAgent, "the caller's own configuration was changed")
}

func TestLacksNamesKindsThatAreNotServed(t *testing.T) {
	for name, c := range map[string]struct {
		served []string // nil: no such group
		want   []string
	}{
		"1.36":          {[]string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}, []string{}},
		"1.35":          {[]string{"ValidatingAdmissionPolicy"}, []string{MutatingPolicy}},
		"1.29":          {[]string{"MutatingWebhookConfiguration"}, []string{MutatingPolicy, ValidatingPolicy}},
		"without group": {nil, []string{MutatingPolicy, ValidatingPolicy}},
	} {
		server := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
		for _, kind := range c.served {
			server.Resources = append(server.Resources, &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/v1"})
			server.Resources[0].APIResources = append(server.Resources[0].APIResources, metav1.APIResource{Kind: kind})
		}
		expect.Equalf(t, c.want, expect.Value(Lacks(server))(t), "%s", name)
	}
}

func TestTheOperatorNeedsItsNamespace(t *testing.T) {
	o := parse(t, "--namespace=here")
	here := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "here"}}
	expect.OK(t, o.checkNamespace(t.Context(), fake.NewClientset(here)))
	err := o.checkNamespace(t.Context(), fake.NewClientset())
	for _, part := range []string{`"here"`, "lockstep install"} {
		expect.ErrorSays(t, err, part)
	}
}

// A cache has one selector for a kind, in whatever form it keeps the objects. If a kind is
// in it twice, the selector is one of the two at random.
func TestEachKindIsInACacheOnce(t *testing.T) {
	scheme := newScheme()
	o := parse(t)
	o.Config.Protection.Alone = true
	for name, objects := range map[string]map[client.Object]cache.ByObject{
		"the manager's": o.cacheOptions(nil).ByObject, "protection's": pvccache.ProtectionCaches(),
	} {
		seen := map[schema.GroupVersionKind]bool{}
		for object := range objects {
			kind := expect.Value(apiutil.GVKForObject(object, scheme))(t)
			expect.That(t, !seen[kind], "%s is twice in the cache: %s", kind.Kind, name)
			seen[kind] = true
		}
		expect.That(t, len(seen) > 0, "the cache is empty: %s", name)
	}
}

func TestGrowthLeavesTheSameRoomForEveryHeap(t *testing.T) {
	const mebibyte = 1 << 20
	for live, want := range map[uint64]int{0: 200, 4 * mebibyte: 200, 24 * mebibyte: 100, 48 * mebibyte: 50, 500 * mebibyte: 35} {
		expect.Equalf(t, want, growthOf(live), "GOGC with %d MiB live", live/mebibyte)
	}
}

func TestMemoryIsReturnedAfterWork(t *testing.T) {
	const mebibyte = 1 << 20
	for name, tt := range map[string]struct {
		lately, since, live uint64
		want                bool
	}{
		"at rest after work":          {1 << 10, 16 * mebibyte, 20 * mebibyte, true},
		"at work":                     {mebibyte, 16 * mebibyte, 20 * mebibyte, false},
		"after little work":           {0, 15 * mebibyte, 20 * mebibyte, false},
		"too little for a large heap": {0, 49 * mebibyte, 100 * mebibyte, false},
		"enough for a large heap":     {0, 50 * mebibyte, 100 * mebibyte, true},
	} {
		expect.Equalf(t, tt.want, isWorthReturning(tt.lately, tt.since, tt.live), "%s", name)
	}
}

const header = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestFileIsReadAndDefaulted(t *testing.T) {
	got, err := LoadConfig(write(t, header+`
webhook: {port: 1234, host: h}
leaderElection: {leaderElect: false, leaseDuration: 1m, resourceNamespace: ignored}
metrics: {bindAddress: "0"}
tls: {minVersion: VersionTLS12, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}
internalCertManagement: {enable: false}
clientConnection: {qps: 7.5}
`))
	expect.OK(t, err)
	want := must(LoadConfig(""))
	want.APIVersion, want.Kind = "config.lws.x-k8s.io/v1alpha1", "Configuration"
	want.Webhook.Port, want.Webhook.Host = new(int32(1234)), "h"
	want.LeaderElection.LeaderElect, want.LeaderElection.ResourceNamespace = new(false), "ignored"
	want.LeaderElection.LeaseDuration.Duration = time.Minute
	want.Metrics.BindAddress = "0"
	want.TLS = &v1alpha1.TLS{MinVersion: "VersionTLS12", CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}}
	want.InternalCertManagement.Enable = new(false)
	want.ClientConnection.QPS = new(float32(7.5))
	expect.Equal(t, want, got)
	expect.Emptyf(t, ValidateConfig(got), "refused")
}

func TestDefaults(t *testing.T) {
	c := must(LoadConfig(""))
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
	expect.Equal(t, want, got)
	expect.Emptyf(t, ValidateConfig(c), "the defaults are refused")
}

func TestReadErrorsNameTheFile(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown field":   {header + "webhook: {prot: 1}", `unknown field "webhook.prot"`},
		"unknown block":   {header + "webhok: {}", `unknown field "webhok"`},
		"field twice":     {header + "webhook:\n  port: 1\n  port: 2\n", `key "port" already set in map`},
		"wrong type":      {header + "webhook: {port: x}", `webhook.port of type int32`},
		"wrong duration":  {header + "leaderElection: {leaseDuration: 5 parsecs}", `5 parsecs`},
		"no kind":         {"webhook: {port: 1}", "wants apiVersion: config.lws.x-k8s.io/v1alpha1 or config.lws.x-k8s.io/v1 and kind: Configuration"},
		"another kind":    {"apiVersion: v1\nkind: Pod", "wants apiVersion: config.lws.x-k8s.io/v1alpha1 or config.lws.x-k8s.io/v1 and kind: Configuration"},
		"another version": {"apiVersion: config.lws.x-k8s.io/v9\nkind: Configuration", "wants apiVersion: config.lws.x-k8s.io/v1alpha1 or config.lws.x-k8s.io/v1 and kind: Configuration"},
		"no YAML":         {"{", "config.yaml"},
		"nothing at all":  {"", "wants apiVersion"},
	} {
		_, err := LoadConfig(write(t, c.text))
		expect.That(t, err != nil && strings.Contains(err.Error(), c.want) && strings.Contains(err.Error(), "config.yaml"),
			"%s: got %v, want %q and the name of the file", name, err, c.want)
	}
	_, err := LoadConfig("/does/not/exist")
	expect.That(t, err != nil, "no error for a missing file")
}

// Each configuration of the file is followed by the fault that names its field.
func TestFaultsNameTheirField(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(string(must(os.ReadFile("testdata/faults.txt")))), "\n")
	for i := 0; i < len(lines); i += 2 {
		text, want := lines[i], strings.TrimSpace(lines[i+1])
		c, err := LoadConfig(write(t, header+text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		faults := ValidateConfig(c)
		expect.That(t, len(faults) > 0 && strings.Contains(faults.ToAggregate().Error(), want),
			"%s: got %v, want %q", text, faults, want)
	}
}

func TestFlagsOverrideTheFile(t *testing.T) {
	file := write(t, header+"webhook: {port: 1000, host: file}\nclientConnection: {qps: 1, burst: 2}\nleaderElection: {leaderElect: false, retryPeriod: 1s}\nmetrics: {bindAddress: ':1'}")
	c := parse(t, "--config", file, "--webhook-port", "2000", "--kube-api-qps", "500", "--leader-elect", "--metrics-bind-address=:8443", "--leader-elect-retry-period=3s").Config
	got := []any{
		*c.Webhook.Port, c.Webhook.Host, *c.ClientConnection.QPS, *c.ClientConnection.Burst, *c.LeaderElection.LeaderElect,
		c.LeaderElection.RetryPeriod.Duration.String(), c.Metrics.BindAddress, c.Health.HealthProbeBindAddress,
	}
	// A flag that is given with its default value overrides the file, too.
	want := []any{int32(2000), "file", float32(500), int32(2), true, "3s", ":8443", ":8081"}
	expect.Equal(t, want, got)
}

func TestEachFlagChangesTheConfiguration(t *testing.T) {
	for flag, value := range map[string]string{
		"webhook-port": "1", "webhook-host": "h", "metrics-bind-address": ":2", "health-probe-bind-address": ":3",
		"kube-api-qps": "4", "kube-api-burst": "5", "leader-elect": "false", "leader-elect-lease-duration": "6s",
		"leader-elect-renew-deadline": "7s", "leader-elect-retry-period": "8s", "leader-elect-resource-lock": "l", "leader-elect-resource-name": "n",
	} {
		expect.That(t, !cmp.Equal(parse(t).Config, parse(t, "--"+flag+"="+value).Config),
			"--%s=%s changes nothing", flag, value)
	}
}

func settings(t *testing.T, text string) ProtectionSettings {
	t.Helper()
	c := must(LoadConfig(write(t, header+text)))
	faults := ValidateConfig(c)
	expect.Must(t, len(faults) == 0, "%v", faults.ToAggregate())
	return SettingsOf(c.Protection, "lws-system")
}

func TestProtectionDefaults(t *testing.T) {
	c := must(LoadConfig(""))
	expect.That(t, *c.Protection.Enabled, "it is off")
	want := ProtectionSettings{
		Settings:   pvc.Settings{Mode: pvc.Barrier, Exempt: []string{"kube-system", "lws-system"}, Idle: v1alpha1.IdleWarn},
		Kinds:      []workloads.Kind{workloads.JobSet, workloads.DisaggregatedSet},
		Grace:      5 * time.Minute,
		ReleaseTTL: time.Hour,
	}
	expect.Equal(t, want, SettingsOf(c.Protection, "lws-system"))
}

func TestProtectionSettings(t *testing.T) {
	got := settings(t, `
protection:
  enabled: false
  mode: Strict
  alone: true
  exemptNamespaces: [a, lws-system]
  idle: Hold
  graceSeconds: 0
  releaseTTLSeconds: 60
  kinds:
  - apiVersion: example.com/v1
    kind: Shard
    podTemplates: [spec.template]
    claimTemplates: [spec.claims]
    claimName: "{template}-{name}-{ordinal}"
    replicas: spec.size
    suspend: spec.pause
    finished: [Done]
`)
	want := ProtectionSettings{
		Settings: pvc.Settings{Mode: pvc.Strict, Alone: true, Exempt: []string{"a", "lws-system"}, Idle: v1alpha1.IdleHold},
		Kinds: []workloads.Kind{workloads.KindOf(v1alpha1.WorkloadKind{
			APIVersion: "example.com/v1", Kind: "Shard",
			PodTemplates:   []string{"spec.template"},
			ClaimTemplates: []string{"spec.claims"},
			ClaimName:      "{template}-{name}-{ordinal}",
			Replicas:       "spec.size",
			Suspend:        "spec.pause",
			Finished:       []string{"Done"},
		}), workloads.JobSet, workloads.DisaggregatedSet},
		ReleaseTTL: time.Minute,
	}
	expect.Equal(t, want, got)
}

func TestSettingsFollowTheConfiguration(t *testing.T) {
	jobSet := "protection: {kinds: [{apiVersion: jobset.x-k8s.io/v1, kind: JobSet, podTemplates: [spec.template]}]}"
	got := settings(t, "protection: {exemptNamespaces: []}").Exempt
	expect.Equalf(t, []string{"lws-system"}, got, "the operator's own namespace is not exempt")
	if got := settings(t, jobSet).Kinds; len(got) != 2 || got[0].Version != "v1" || got[1].Kind == "JobSet" {
		t.Errorf("a configured JobSet does not replace the built-in one: %+v", got)
	}
	for _, text := range []string{"Off", `"Off"`} { // in YAML, off is a boolean
		expect.Equalf(t, pvc.Off, settings(t, "protection: {mode: "+text+"}").Mode, "%s", text)
	}
	if _, err := LoadConfig(write(t, header+"protection: {mode: On}")); err == nil || !strings.Contains(err.Error(), "a mode is a word such as Barrier, not true") {
		t.Errorf("got %v", err)
	}
}

func TestAllModesCanBeConfigured(t *testing.T) {
	for word, mode := range protectionModes {
		expect.Equalf(t, strings.ToLower(string(word)), mode.String(), "%s is read as", word)
	}
	expect.That(t, len(protectionModes) == int(pvc.Strict)+1, "a mode cannot be configured")
	expect.Equalf(t, 3, len(idlePolicies), "idle policies")
}

// A configuration is an error, or it has its defaults, can be judged, and is the same when it is written and read again.
func FuzzParseConfig(f *testing.F) {
	const head = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"
	for _, text := range []string{
		"", "{}", "null", "[", "\x00", head, head + head, "a: &a [*a]\n", strings.Replace(head, "v1alpha1", "v1", 1),
		strings.Replace(head, "config.lws.x-k8s.io/v1alpha1", v1alpha1.NextVersion.String(), 1),
		head + "leaderElection: {leaderElect: true, leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s}\n",
		head + "leaderElection: {leaseDuration: 99999999999h}\n",
		head + "protection: {mode: Strict, graceSeconds: -1, releaseTTLSeconds: 9223372036854775807, exemptNamespaces: [a, \"\"]}\n",
		head + "protection: {kinds: [{group: g, version: v, resource: r, podTemplates: [spec.template], replicas: spec.replicas}]}\n",
		head + "webhook: {port: 70000}\ntls: {minVersion: VersionTLS13, cipherSuites: [A]}\nunknown: 1\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := ParseConfig(text)
		expect.Must(t, (err == nil) == (config != nil), "a configuration %t and error %v", config != nil, err)
		if err != nil {
			return
		}
		judged := ValidateConfig(config)
		again := config.DeepCopy()
		v1alpha1.SetDefaults(again)
		expect.Equalf(t, config, again, "defaults that are filled in twice")
		written := expect.Value(yaml.Marshal(config))(t)
		expect.Must(t, len(written) <= 1<<20+16*len(text), "%d bytes became %d", len(text), len(written))
		if text == nil {
			return // without a text there is no kind
		}
		read, err := ParseConfig(written)
		expect.Must(t, err == nil, "our own text is refused: %v\n%s", err, written)
		expect.Equal(t, config, read)
		twice := ValidateConfig(read)
		expect.Must(t, len(judged) == len(twice), "judged as %v, then as %v", judged, twice)
	})
}
