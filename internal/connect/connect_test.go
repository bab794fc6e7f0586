package connect_test

import (
	"os"
	"path/filepath"
	"testing"

	"lockstep.dev/lockstep/internal/connect"
	"lockstep.dev/lockstep/internal/version"
	"lockstep.dev/lockstep/test/expect"
)

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "https://example.com"}}],
contexts: [{name: c, context: {cluster: c}}]}`

// A file that the user names is the only one, and must be usable. Those of the environment may be missing.
func TestConfigOfAFile(t *testing.T) {
	missing, found := filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "found")
	expect.OK(t, os.WriteFile(found, []byte(kubeconfig), 0o600))
	for named, environment := range map[string]string{found: missing, "": found} {
		t.Setenv("KUBECONFIG", environment)
		config := expect.Value(connect.Config(named))(t)
		expect.Equal(t, "https://example.com", config.Host)
		expect.Equal(t, version.UserAgent(), config.UserAgent)
	}
	for named, environment := range map[string]string{missing: found, "": missing} {
		t.Setenv("KUBECONFIG", environment)
		_, err := connect.Config(named)
		expect.ErrorSays(t, err, map[bool]string{true: "no cluster is configured", false: "cannot be used"}[named == ""])
	}
}
