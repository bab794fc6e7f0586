package operator

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
)

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
		if (err == nil) != (config != nil) {
			t.Fatalf("a configuration %t and error %v", config != nil, err)
		}
		if err != nil {
			return
		}
		judged := ValidateConfig(config)
		again := config.DeepCopy()
		v1alpha1.SetDefaults(again)
		if diff := cmp.Diff(config, again); diff != "" {
			t.Fatalf("defaults that are filled in twice (-once +twice):\n%s", diff)
		}
		written, err := yaml.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if len(written) > 1<<20+16*len(text) {
			t.Fatalf("%d bytes became %d", len(text), len(written))
		}
		if text == nil {
			return // without a text there is no kind
		}
		read, err := ParseConfig(written)
		if err != nil {
			t.Fatalf("our own text is refused: %v\n%s", err, written)
		}
		if diff := cmp.Diff(config, read); diff != "" {
			t.Fatalf("(-once +twice):\n%s", diff)
		}
		if twice := ValidateConfig(read); len(judged) != len(twice) {
			t.Fatalf("judged as %v, then as %v", judged, twice)
		}
	})
}
