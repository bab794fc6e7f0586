package plane

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lockstep.dev/lockstep/local/internal/process"
)

// clusterOf returns a cluster whose components are all one shell script. "$1" distinguishes
// them.
func clusterOf(t *testing.T, script string) *Cluster {
	t.Helper()
	executable := filepath.Join(t.TempDir(), "components")
	must(t, os.WriteFile(executable, []byte("#!/bin/sh\n"+script), 0o700))
	return &Cluster{Layout: Layout{Dir: filepath.Join(t.TempDir(), "cluster")}, Executable: executable, Progress: io.Discard}
}

// remember saves the state of a cluster, as an earlier command does.
func remember(t *testing.T, c *Cluster, state State) *Cluster {
	t.Helper()
	must(t, errors.Join(c.create(), state.save(c.Layout)))
	return c
}

func TestUpReportsTheComponentThatDies(t *testing.T) {
	c := clusterOf(t, `echo > $$.pid
case "$1" in --name=local) echo "disk on fire"; exit 3;; esac
exec sleep 600`)
	err := c.Up(context.Background(), DefaultSettings())
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"etcd ended", "exit status 3", "disk on fire", c.Log(Etcd)} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	state, found, err := loadState(c.Layout)
	if err != nil || !found || state.Running || len(state.Processes) > 0 {
		t.Errorf("state after a failed up: found %t, %v, %+v", found, err, state)
	}
	pids, err := filepath.Glob(filepath.Join(c.inner(), "*.pid"))
	if err != nil || len(pids) == 0 {
		t.Fatalf("no component wrote its pid: %v", err)
	}
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
	if err := c.Up(context.Background(), DefaultSettings()); err == nil || !strings.Contains(err.Error(), "etcd could not be started") {
		t.Errorf("error %v", err)
	}
}

func TestDownSparesRecycledPids(t *testing.T) {
	recycled := process.Identity{PID: os.Getpid(), Start: "long ago"}
	c := remember(t, clusterOf(t, ""), State{Running: true, Processes: map[Component]process.Identity{Etcd: recycled}})
	for _, want := range []bool{true, false} { // the second call finds nothing to end
		if was, err := c.Down(context.Background()); err != nil || was != want {
			t.Errorf("Down() = %t, %v; want %t", was, err, want)
		}
	}
}

func TestDownWithoutClusterMakesNoDirectory(t *testing.T) {
	c := clusterOf(t, "")
	if was, err := c.Down(context.Background()); was || err != nil {
		t.Errorf("Down() = %t, %v", was, err)
	}
	if _, err := os.Stat(c.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory: %v", err)
	}
}

func TestRefusedSettingsAreNotSaved(t *testing.T) {
	before := State{Running: true, Settings: DefaultSettings()}
	c := remember(t, clusterOf(t, ""), before)
	refusal := errors.New("no such controller")
	err := c.Restart(context.Background(), Etcd, func(s Settings) (Settings, error) {
		s.ControllerQPS = 1
		return s, refusal
	})
	if !errors.Is(err, refusal) {
		t.Errorf("error %v, want %q", err, refusal)
	}
	after, _, err := loadState(c.Layout)
	if err != nil || after.Settings.ControllerQPS != before.Settings.ControllerQPS {
		t.Errorf("saved settings: %+v, %v", after.Settings, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBrokenStateIsAnError(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	must(t, os.WriteFile(l.state(), []byte("{half"), 0o600))
	if _, _, err := loadState(l); err == nil || !strings.Contains(err.Error(), l.state()) {
		t.Errorf("error %v, want one that names %s", err, l.state())
	}
}

func TestOnlyOneCommandAtATime(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	release, err := acquire(context.Background(), l, 0)
	must(t, err)
	if _, err := acquire(context.Background(), l, 0); err == nil || !strings.Contains(err.Error(), "another lockstep-local command") {
		t.Errorf("second command: %v", err)
	}
	release()
	release, err = acquire(context.Background(), l, 0)
	if err != nil {
		t.Fatalf("after the first has finished: %v", err)
	}
	release()
}

func TestClearRemovesOnlyOurFiles(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	foreign := filepath.Join(l.Dir, "notes.txt")
	for _, path := range []string{foreign, l.Kubeconfig(), l.AuditLog()} {
		must(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	must(t, l.create())
	if err := l.clear(false); err == nil || !strings.Contains(err.Error(), l.Dir) {
		t.Errorf("without our marker: %v, want a refusal that names the directory", err)
	}
	if _, err := os.Stat(l.Kubeconfig()); err != nil {
		t.Errorf("without our marker, a kubeconfig was removed: %v", err)
	}
	must(t, l.clear(true))
	entries, err := os.ReadDir(l.Dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "notes.txt" {
		t.Errorf("left: %v, %v; want notes.txt only", entries, err)
	}
}

func TestLayoutIsAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := NewLayout("some/dir")
	if err != nil || !filepath.IsAbs(l.Kubeconfig()) {
		t.Errorf("kubeconfig %q, %v; want an absolute path", l.Kubeconfig(), err)
	}
	if _, err := NewLayout(""); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("no directory: %v, want an error that names --dir", err)
	}
}
