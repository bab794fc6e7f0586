package integration

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/cli"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/test/delay"
)

// plugin is kubectl-lockstep with a kubeconfig that may impersonate users.
type plugin struct {
	kubeconfig, namespace string
}

func newPlugin(t *testing.T, cfg *rest.Config, namespace string) plugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, delay.WriteKubeconfig(cfg, path))
	return plugin{path, namespace}
}

// run runs the plugin as a user, or as the administrator, without a terminal.
func (p plugin) run(t *testing.T, user string, args ...string) (out, errOut string, err error) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	streams.In = bytes.NewReader(nil)
	cmd := cli.NewCommand(streams)
	args = append(args, "--kubeconfig", p.kubeconfig, "-n", p.namespace)
	if user != "" {
		args = append(args, "--as", user)
	}
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// why asks about one PVC with -o json.
func (p plugin) why(t *testing.T, user, claim string, flags ...string) render.ClaimWhy {
	t.Helper()
	out, _, err := p.run(t, user, append([]string{"why", "pvc/" + claim, "-o", "json"}, flags...)...)
	if err != nil {
		t.Fatalf("why pvc/%s: %v", claim, err)
	}
	var told render.ClaimWhy
	if err := json.Unmarshal([]byte(out), &told); err != nil {
		t.Fatalf("why pvc/%s: %v in\n%s", claim, err, out)
	}
	return told
}
