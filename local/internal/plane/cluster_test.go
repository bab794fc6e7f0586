package plane

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"lockstep.dev/lockstep/local/internal/process"
	"lockstep.dev/lockstep/test/expect"
)

// clusterOf returns a cluster whose components are all one shell script. "$1" distinguishes
// them.
func clusterOf(t *testing.T, script string) *Cluster {
	t.Helper()
	executable := filepath.Join(t.TempDir(), "components")
	expect.OK(t, os.WriteFile(executable, []byte("#!/bin/sh\n"+script), 0o700))
	return &Cluster{Layout: Layout{Dir: filepath.Join(t.TempDir(), "cluster")}, Executable: executable, Progress: io.Discard}
}

// remember saves the state of a cluster, as an earlier command does.
func remember(t *testing.T, c *Cluster, state State) *Cluster {
	t.Helper()
	expect.OK(t, errors.Join(c.create(), state.save(c.Layout)))
	return c
}

func TestUpReportsTheComponentThatDies(t *testing.T) {
	c := clusterOf(t, `echo > $$.pid
case "$1" in --name=local) echo "disk on fire"; exit 3;; esac
exec sleep 600`)
	err := c.Up(context.Background(), DefaultSettings())
	expect.Must(t, err != nil, "no error")
	for _, part := range []string{"etcd ended", "exit status 3", "disk on fire", c.Log(Etcd)} {
		expect.Says(t, err.Error(), part)
	}
	state, found, err := loadState(c.Layout)
	expect.That(t, err == nil && found && !state.Running && len(state.Processes) == 0,
		"state after a failed up: found %t, %v, %+v", found, err, state)
	pids, err := filepath.Glob(filepath.Join(c.inner(), "*.pid"))
	expect.Must(t, err == nil && len(pids) > 0, "no component wrote its pid: %v", err)
	for _, path := range pids {
		pid, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".pid"))
		if _, err := process.Identify(pid); err == nil {
			t.Errorf("process %d still runs", pid)
		}
	}
}

func TestUpOfMissingExecutable(t *testing.T) {
	c := clusterOf(t, "")
	c.Executable = "/does/not/exist"
	expect.ErrorSays(t, c.Up(context.Background(), DefaultSettings()), "etcd could not be started")
}

func TestDownSparesRecycledPids(t *testing.T) {
	recycled := process.Identity{PID: os.Getpid(), Start: "long ago"}
	c := remember(t, clusterOf(t, ""), State{Running: true, Processes: map[Component]process.Identity{Etcd: recycled}})
	for _, want := range []bool{true, false} { // the second call finds nothing to end
		was := expect.Value(c.Down(context.Background()))(t)
		expect.Equalf(t, want, was, "Down()")
	}
}

func TestDownWithoutClusterMakesNoDirectory(t *testing.T) {
	c := clusterOf(t, "")
	was := expect.Value(c.Down(context.Background()))(t)
	expect.Equalf(t, false, was, "Down()")
	_, err := os.Stat(c.Dir)
	expect.That(t, errors.Is(err, os.ErrNotExist), "directory: %v", err)
}

func TestRefusedSettingsAreNotSaved(t *testing.T) {
	before := State{Running: true, Settings: DefaultSettings()}
	c := remember(t, clusterOf(t, ""), before)
	refusal := errors.New("no such controller")
	err := c.Restart(context.Background(), Etcd, func(s Settings) (Settings, error) {
		s.ControllerQPS = 1
		return s, refusal
	})
	expect.That(t, errors.Is(err, refusal), "error %v, want %q", err, refusal)
	after, _, err := loadState(c.Layout)
	expect.That(t, err == nil && after.Settings.ControllerQPS == before.Settings.ControllerQPS,
		"saved settings: %+v, %v", after.Settings, err)
}

func TestBrokenStateIsAnError(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	expect.OK(t, os.WriteFile(l.state(), []byte("{half"), 0o600))
	if _, _, err := loadState(l); err == nil || !strings.Contains(err.Error(), l.state()) {
		t.Errorf("error %v, want one that names %s", err, l.state())
	}
}

func TestOnlyOneCommandAtATime(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	release := expect.Value(acquire(context.Background(), l, 0))(t)
	if _, err := acquire(context.Background(), l, 0); err == nil || !strings.Contains(err.Error(), "another lockstep-local command") {
		t.Errorf("second command: %v", err)
	}
	release()
	release = expect.Value(acquire(context.Background(), l, 0))(t) // after the first has finished
	release()
}

func TestClearRemovesOnlyOurFiles(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	foreign := filepath.Join(l.Dir, "notes.txt")
	for _, path := range []string{foreign, l.Kubeconfig(), l.AuditLog()} {
		expect.OK(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	expect.OK(t, l.create())
	expect.ErrorSays(t, l.clear(false), l.Dir)
	if _, err := os.Stat(l.Kubeconfig()); err != nil {
		t.Errorf("without our marker, a kubeconfig was removed: %v", err)
	}
	expect.OK(t, l.clear(true))
	entries, err := os.ReadDir(l.Dir)
	expect.That(t, err == nil && len(entries) == 1 && entries[0].Name() == "notes.txt",
		"left: %v, %v; want notes.txt only", entries, err)
}

func TestLayoutIsAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := NewLayout("some/dir")
	expect.That(t, err == nil && filepath.IsAbs(l.Kubeconfig()),
		"kubeconfig %q, %v; want an absolute path", l.Kubeconfig(), err)
	if _, err := NewLayout(""); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("no directory: %v, want an error that names --dir", err)
	}
}

const moment = `{"at":"2026-11-26T04:36:50Z"}`

// archived writes an archive with files, in the order of their names.
func archived(t *testing.T, files map[string]string) string {
	t.Helper()
	var text bytes.Buffer
	packed := gzip.NewWriter(&text)
	writer := tar.NewWriter(packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		expect.OK(t, writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}))
		expect.Value(writer.Write([]byte(files[name])))(t)
	}
	expect.OK(t, writer.Close())
	expect.OK(t, packed.Close())
	path := filepath.Join(t.TempDir(), "report.tar.gz")
	expect.OK(t, os.WriteFile(path, text.Bytes(), 0o600))
	return path
}

// Objects are stored under the keys at which the API server looks for them.
func TestKeysOfARecording(t *testing.T) {
	r, err := ReadRecording(t.Context(), archived(t, map[string]string{
		"moment.json":                         moment,
		"report.md":                           "text",
		"objects/pods/ns/a-0.json":            "pod",
		"objects/nodes/n.json":                "node",
		"objects/services/ns/a.json":          "service",
		"objects/statefulsets.apps/ns/a.json": "statefulset",
		"objects/leaderworkersets.leaderworkerset.x-k8s.io/ns/a.json":                         "set",
		"objects/" + definitionsKind + "/" + "leaderworkersets.leaderworkerset.x-k8s.io.json": `{"spec":{}}`,
	}))
	expect.OK(t, err)
	want := map[string]string{
		"/registry/pods/ns/a-0":                                    "pod",
		"/registry/minions/n":                                      "node",
		"/registry/services/specs/ns/a":                            "service",
		"/registry/statefulsets/ns/a":                              "statefulset",
		"/registry/leaderworkerset.x-k8s.io/leaderworkersets/ns/a": "set",
		"/registry/apiextensions.k8s.io/customresourcedefinitions/leaderworkersets.leaderworkerset.x-k8s.io": `{"spec":{}}`,
	}
	expect.Equal(t, want, r.stored)
}

func TestWhatIsNoRecordingIsRefused(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no moment":     {"objects/nodes/n.json": "{}"},
		"no time":       {"moment.json": "{}"},
		"a path upward": {"moment.json": moment, "objects/../../x.json": "{}"},

		// An API server with these sends requests where a stranger wants them.
		"a webhook":                 {"moment.json": moment, "objects/mutatingwebhookconfigurations.admissionregistration.k8s.io/a.json": "{}"},
		"a webhook without group":   {"moment.json": moment, "objects/validatingwebhookconfigurations/a.json": "{}"},
		"a role":                    {"moment.json": moment, "objects/clusterrolebindings.rbac.authorization.k8s.io/a.json": "{}"},
		"a secret":                  {"moment.json": moment, "objects/secrets/ns/a.json": "{}"},
		"a kind without definition": {"moment.json": moment, "objects/apples.example.com/ns/a.json": "{}"},
		"another API server": {"moment.json": moment, "objects/apiservices.apiregistration.k8s.io/v1.json": "{}",
			"objects/" + definitionsKind + "/apiservices.apiregistration.k8s.io.json": "{}"},
		"a definition with a conversion": {"moment.json": moment, "objects/" + definitionsKind + "/a.example.com.json": `{"spec":{"\u0063onversion":{}}}`},
		"a definition that is no JSON":   {"moment.json": moment, "objects/" + definitionsKind + "/a.example.com.json": "k8s\x00"},
	} {
		_, err := ReadRecording(t.Context(), archived(t, files))
		expect.That(t, err != nil, "%s: it was read", name)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	expect.OK(t, os.WriteFile(plain, []byte("text"), 0o600))
	_, err := ReadRecording(t.Context(), plain)
	expect.That(t, err != nil, "a text was read")
}

func TestTheClockStandsInTheKubeconfig(t *testing.T) {
	path, config := filepath.Join(t.TempDir(), "kubeconfig"), clientcmdapi.NewConfig()
	config.Contexts["local"], config.CurrentContext = clientcmdapi.NewContext(), "local"
	expect.OK(t, clientcmd.WriteToFile(*config, path))
	expect.OK(t, (&Recording{moment: []byte(moment)}).stopClock(path))
	read := expect.Value(clientcmd.LoadFromFile(path))(t)
	extension, ok := read.Contexts["local"].Extensions[replayExtension].(*runtime.Unknown)
	expect.Must(t, ok, "got %#v", read.Contexts["local"].Extensions)
	var at struct{ At time.Time }
	err := json.Unmarshal(extension.Raw, &at)
	expect.That(t, err == nil && at.At.Second() == 50, "got %s, %v", extension.Raw, err)
}
