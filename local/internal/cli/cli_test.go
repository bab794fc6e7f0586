package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"lockstep.dev/lockstep/local/internal/plane"
	"lockstep.dev/lockstep/test/expect"
)

func run(args ...string) (code int, out, err string) {
	var stdout, stderr bytes.Buffer
	code = Run(context.Background(), "v1.37.1", []string{"etcd", "kubectl"}, args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestBadCallsAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "never-made")
	for _, c := range []struct{ args, says string }{
		{"bogus", `unknown command "bogus"`},
		{"up", "--dir DIR"},
		{"up --dir D --nodes -1", "--nodes -1"},
		{"up --dir D --kcm-qps 0", "--kcm-qps 0"},
		{"up --dir D --feature-gates A", `"--feature-gates"`},
		{"up --dir D --feature-gates A=perhaps", "A: perhaps"},
		{"up --dir D --timeout 0s", "--timeout 0s"},
		{"up --dir D extra", "extra"},
		{"up --dir D --from /none.tar.gz", "/none.tar.gz"},
		{"up --dir D --from x --nodes 3", "[from nodes]"},
		{"kill --dir D", "give one component"},
		{"kill kubelet --dir D", `unknown component "kubelet": it is one of etcd`},
		{"restart bogus --dir D", `unknown component "bogus"`},
		{"restart etcd --dir D --nodes 5", "unknown flag: --nodes"},
		{"status --dir D", "lockstep-local up --dir"},
		{"kill etcd --dir D", "lockstep-local up --dir"},
		{"restart etcd --dir D", "lockstep-local up --dir"},
		{"status --dir D -o yaml", `--output "yaml": give json`},
		{"--verbose kubectl", "unknown flag"},
	} {
		code, out, err := run(strings.Fields(strings.ReplaceAll(c.args, " D", " "+dir))...)
		expect.That(t, code == 1 && out == "" && strings.Contains(err, c.says),
			"%s: exit %d, stdout %q, stderr %q; want exit 1 and %q", c.args, code, out, err, c.says)
	}
	_, err := os.Stat(dir)
	expect.That(t, errors.Is(err, os.ErrNotExist), "a refused call created its directory: %v", err)
}

func TestFlagsReplaceSavedSettings(t *testing.T) {
	saved := plane.Settings{
		Nodes: 3, Audit: true, ControllerQPS: 50, FeatureGates: map[string]bool{"A": true}, Controllers: []string{"*", "-x"},
	}
	for name, c := range map[string]struct {
		args []string
		want func(*plane.Settings)
	}{
		"nothing given":    {nil, func(*plane.Settings) {}},
		"a default, given": {[]string{"--kcm-controllers", "*"}, func(s *plane.Settings) { s.Controllers = []string{"*"} }},
		"off again":        {[]string{"--audit=false"}, func(s *plane.Settings) { s.Audit = false }},
		"several": {[]string{"--kcm-qps=7", "--feature-gates=B=false,C=true", "--disable-admission=P,Q"}, func(s *plane.Settings) {
			s.ControllerQPS, s.FeatureGates, s.DisableAdmission = 7, map[string]bool{"B": false, "C": true}, []string{"P", "Q"}
		}},
	} {
		settings, flags := plane.DefaultSettings(), pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.String("dir", "", "")
		addRestartable(flags, &settings)
		expect.OK(t, flags.Parse(c.args))
		got, err := over(saved, flags)
		expect.That(t, err == nil, "%s: %v", name, err)
		want := saved
		c.want(&want)
		expect.Equalf(t, want, got, "%s", name)
	}
}

func TestStatusTable(t *testing.T) {
	var out bytes.Buffer
	err := writeTable(&out, plane.Status{
		Kubeconfig: "/c/kubeconfig",
		Components: []plane.ComponentStatus{
			{Name: plane.Etcd, State: plane.Ready, PID: 7, Address: "127.0.0.1:21001"},
			{Name: plane.Kwok, State: plane.Killed, Address: "127.0.0.1:21005", Detail: "ended by kill"},
		},
		Nodes: &plane.NodeStatus{Ready: 2, Total: 3},
	})
	expect.OK(t, err)
	const want = `COMPONENT   STATE    PID   ADDRESS           DETAIL
etcd        ready    7     127.0.0.1:21001   
kwok        killed   -     127.0.0.1:21005   ended by kill

nodes: 2 of 3 ready
kubeconfig: /c/kubeconfig
`
	expect.Equal(t, want, out.String())
}

func TestLinkAssetsKeepsOtherPrograms(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "kubectl")
	expect.OK(t, os.WriteFile(program, []byte("the user's"), 0o755))
	expect.ErrorSays(t, linkAssets(dir, "/bin/sh"), program)
	expect.Equalf(t, "the user's", string(expect.Value(os.ReadFile(program))(t)), "the program was replaced")
}
