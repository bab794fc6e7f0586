//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/program"
)

func TestMain(m *testing.M) { program.Main(m, main) }

func TestEveryCommandEndsWhileTheAPIServerIsSilent(t *testing.T) {
	version := map[string]string{"/version": `{"major":"1","minor":"34","gitVersion":"v1.34.0"}`}
	ready := map[string]string{ // what run asks before it starts anything
		"/version":                            version["/version"],
		"/apis/leaderworkerset.x-k8s.io/v1":   `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"leaderworkerset.x-k8s.io/v1","resources":[]}`,
		"/api/v1/namespaces/lws-system":       `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"lws-system"}}`,
		"/apis/coordination.k8s.io/v1/leases": `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","items":[]}`,
	}
	for name, answers := range map[string]map[string]string{"from the start": nil, "after its version": version, "once all is ready": ready} {
		for _, args := range program.Leaves(t, newCommand(), map[string]string{
			"lockstep run":       "run --namespace lws-system --metrics-bind-address 0 --health-probe-bind-address 0 --webhooks=false",
			"lockstep install":   "install",
			"lockstep uninstall": "uninstall",
			"lockstep version":   "",
		}) {
			for _, signal := range program.Signals {
				if len(args) == 0 {
					continue // it sends no request
				}
				t.Run(strings.Join([]string{args[0], name, signal.String()}, " "), func(t *testing.T) {
					server, asked := program.Mute(t, answers)
					config := filepath.Join(t.TempDir(), "config")
					text := "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a}}]\nclusters: [{name: a, cluster: {server: \"" + server.URL + "\"}}]\n"
					expect.OK(t, os.WriteFile(config, []byte(text), 0o600))
					program.Ends(t, program.Command(t, append(args, "--kubeconfig", config)...), signal, func() { <-asked })
				})
			}
		}
	}
}

// A pipe whose writer stays open has no end.
func TestACommandEndsWhileItReadsItsConfiguration(t *testing.T) {
	for _, command := range []string{"run", "install --print"} {
		for _, signal := range program.Signals {
			t.Run(command+" "+signal.String(), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "pipe.yaml")
				expect.OK(t, unix.Mkfifo(path, 0o600))
				c := program.Command(t, append(strings.Fields(command), "--config", path)...)
				program.Ends(t, c, signal, func() {
					held, err := os.OpenFile(path, os.O_WRONLY, 0)
					expect.That(t, err == nil, "%v", err)
					t.Cleanup(func() { _ = held.Close() })
				})
			})
		}
	}
}

func TestAConfigurationIsReadInBounds(t *testing.T) {
	for _, command := range []string{"run", "install --print"} {
		for _, endless := range program.Endless(t) {
			program.Fails(t, program.Command(t, append(strings.Fields(command), "--config", endless)...), "it has more than 1 MiB")
		}
		program.Fails(t, program.Command(t, append(strings.Fields(command), "--config", program.Bomb(t))...), "a document of it has more than 1 MiB")
	}
}

func TestAnAuthorityIsReadInBounds(t *testing.T) {
	dir := t.TempDir()
	expect.OK(t, os.Symlink("/dev/zero", filepath.Join(dir, "ca.crt")))
	program.Fails(t, program.Command(t, "install", "--print", "--webhook-ca", dir), "it has more than 1 MiB")
}
