//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"lockstep.dev/lockstep/internal/cli"
	"lockstep.dev/lockstep/internal/terminal"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/program"
)

func TestMain(m *testing.M) { program.Main(m, main) }

// commands are those that ask an API server, with their arguments.
func commands(t *testing.T) (all [][]string) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	for _, args := range program.Leaves(t, cli.NewCommand(streams), map[string]string{
		"kubectl lockstep status":          "status a --watch",
		"kubectl lockstep plan":            "plan a",
		"kubectl lockstep logs":            "logs a 0 -f",
		"kubectl lockstep exec":            "exec a 0",
		"kubectl lockstep events":          "events a --watch",
		"kubectl lockstep node":            "node a",
		"kubectl lockstep restart":         "restart a 0",
		"kubectl lockstep recover":         "recover a 0",
		"kubectl lockstep why":             "why pvc/a",
		"kubectl lockstep release":         "release pvc/a --yes",
		"kubectl lockstep check":           "check",
		"kubectl lockstep report":          "report a -o -",
		"kubectl lockstep rollout status":  "rollout status a",
		"kubectl lockstep rollout history": "rollout history a",
		"kubectl lockstep rollout diff":    "rollout diff a",
		"kubectl lockstep rollout undo":    "rollout undo a",
		"kubectl lockstep rollout restart": "rollout restart a",
		"kubectl lockstep rollout pause":   "rollout pause a",
		"kubectl lockstep rollout resume":  "rollout resume a",
		"kubectl lockstep version":         "", // it sends no request
	}) {
		if len(args) > 0 {
			all = append(all, args)
		}
	}
	for _, ofRoles := range []string{"status dset/a --watch", "plan dset/a", "rollout status dset/a", "rollout undo dset/a"} {
		all = append(all, strings.Fields(ofRoles))
	}
	return all
}

// discovery is the discovery document of an API server with the kinds that the commands read.
var discovery = map[string]string{
	"/version": `{"major":"1","minor":"34","gitVersion":"v1.34.0"}`,
	"/api":     `{"kind":"APIVersions","versions":["v1"]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[` + group("apps", "v1") + "," + group("batch", "v1") + "," +
		group("leaderworkerset.x-k8s.io", "v1") + "," + group("disaggregatedset.x-k8s.io", "v1") + "]}",
	"/api/v1":                            resources("v1", "Pod", "Service", "PersistentVolumeClaim", "Event", "Node"),
	"/apis/apps/v1":                      resources("apps/v1", "StatefulSet", "ControllerRevision", "Deployment", "ReplicaSet", "DaemonSet"),
	"/apis/batch/v1":                     resources("batch/v1", "Job", "CronJob"),
	"/apis/leaderworkerset.x-k8s.io/v1":  resources("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
	"/apis/disaggregatedset.x-k8s.io/v1": resources("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet"),
}

func group(name, version string) string {
	v := `{"groupVersion":"` + name + "/" + version + `","version":"` + version + `"}`
	return `{"name":"` + name + `","versions":[` + v + `],"preferredVersion":` + v + "}"
}

func resources(groupVersion string, kinds ...string) string {
	var all []string
	for _, kind := range kinds {
		all = append(all, `{"name":"`+strings.ToLower(kind)+`s","singularName":"","namespaced":`+strconv.FormatBool(kind != "Node")+`,"kind":"`+kind+`","verbs":["get","list"]}`)
	}
	return `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"` + groupVersion + `","resources":[` + strings.Join(all, ",") + "]}"
}

// Discovery knows no context. What is asked after it does.
func TestEveryCommandEndsWhileTheAPIServerIsSilent(t *testing.T) {
	version := map[string]string{"/version": discovery["/version"]}
	for name, answers := range map[string]map[string]string{"from the start": nil, "after its version": version, "after discovery": discovery} {
		for _, args := range commands(t) {
			for _, signal := range program.Signals {
				t.Run(strings.Join(append(args, name, signal.String()), " "), func(t *testing.T) {
					server, asked := program.Mute(t, maps.Clone(answers))
					program.Ends(t, program.Command(t, append(args, "--server", server.URL)...), signal, func() { <-asked })
				})
			}
		}
	}
}

func TestACommandEndsWhileItReads(t *testing.T) {
	for _, signal := range program.Signals {
		t.Run("standard input "+signal.String(), func(t *testing.T) {
			c := program.Command(t, "plan", "-f", "-")
			in := expect.Value(c.StdinPipe())(t)
			program.Ends(t, c, signal, func() {
				if _, err := in.Write(bytes.Repeat([]byte("# \n"), 1<<16)); err != nil { // more than a pipe holds
					t.Error(err)
				}
			})
		})
		t.Run("a pipe that stays open "+signal.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pipe.yaml")
			expect.OK(t, unix.Mkfifo(path, 0o600))
			program.Ends(t, program.Command(t, "plan", "-f", path), signal, func() {
				held, err := os.OpenFile(path, os.O_WRONLY, 0) // returns when the program has opened it
				expect.That(t, err == nil, "%v", err)
				t.Cleanup(func() { _ = held.Close() })
			})
		})
	}
}

func TestACommandEndsWhileNobodyReadsItsOutput(t *testing.T) {
	for _, signal := range program.Signals {
		t.Run(signal.String(), func(t *testing.T) {
			out, in, err := os.Pipe()
			expect.OK(t, err)
			t.Cleanup(func() { _ = errors.Join(out.Close(), in.Close()) })
			expect.Value(unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, 4096))(t)
			const before = 2048
			expect.Value(in.Write(make([]byte, before)))(t)
			c := program.Command(t, "plan", "--help")
			c.Stdout, c.Stderr = in, in
			program.Ends(t, c, signal, func() {
				for held := 0; held <= before; { // the rest does not fit
					if held, err = unix.IoctlGetInt(int(out.Fd()), unix.TIOCINQ); err != nil {
						t.Error(err)
						return
					}
				}
			})
		})
	}
}

func TestAFileIsReadInBounds(t *testing.T) {
	for _, endless := range program.Endless(t) {
		program.Fails(t, program.Command(t, "plan", "-f", endless), "it has more than 16 MiB")
	}
	piped := program.Command(t, "plan", "-f", "-")
	zeros := expect.Value(os.Open("/dev/zero"))(t)
	defer zeros.Close()
	piped.Stdin = zeros
	program.Fails(t, piped, "it has more than 16 MiB")
	program.Fails(t, program.Command(t, "plan", "-f", program.Bomb(t)), "a document of it has more than 3 MiB")
}

// The message of an API server, and an argument, may have any author.
func TestNoErrorSteersATerminal(t *testing.T) {
	const hostile = "\u202eevil\u200b\x1b[2J\u009b2J\U000e0061\u2028"
	refusal, _ := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": http.StatusForbidden, "message": hostile,
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, found := discovery[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusForbidden)
			answer = string(refusal)
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	for _, args := range append(commands(t), []string{"plan", "-f", hostile}, []string{hostile}, []string{"status", hostile}, []string{"status", "--" + hostile}) {
		text, _ := program.Command(t, append(args, "--server", server.URL)...).CombinedOutput()
		got := string(text)
		expect.That(t, got == terminal.Escape(got) && strings.Contains(got, `\u202eevil`), "%v printed %q", args, got)
	}
}
