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

// clusterOf is a cluster whose components are all one shell script; "$1" tells
// them apart.
func clusterOf(t *testing.T, script string) *Cluster {
	t.Helper()
	executable := filepath.Join(t.TempDir(), "components")
	if err := os.WriteFile(executable, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Cluster{Layout: Layout{Dir: filepath.Join(t.TempDir(), "cluster")}, Executable: executable, Progress: io.Discard}
}

// remember makes a cluster one that an earlier command left in this state.
func remember(t *testing.T, c *Cluster, state State) *Cluster {
	t.Helper()
	if err := errors.Join(c.create(), state.save(c.Layout)); err != nil {
		t.Fatal(err)
	}
	return c
}

// checkNothingLeft looks at what up last remembered of the processes.
func checkNothingLeft(t *testing.T, c *Cluster) {
	t.Helper()
	state, found, err := loadState(c.Layout)
	if err != nil || !found {
		t.Fatalf("found %t, %v", found, err)
	}
	if state.Running || len(state.Processes) > 0 {
		t.Errorf("remembered as running: %+v", state)
	}
	pids, err := filepath.Glob(filepath.Join(c.inner(), "*.pid"))
	if err != nil || len(pids) == 0 {
		t.Fatalf("no component wrote its pid: %v", err)
	}
	for _, path := range pids {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".pid"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := process.Identify(pid); err == nil {
			t.Errorf("process %d still runs", pid)
		}
	}
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
	checkNothingLeft(t, c)
}

func TestUpInterruptedLeavesNothing(t *testing.T) {
	c := clusterOf(t, "echo > $$.pid; exec sleep 600")
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		for { // until both components that are started first have begun
			if pids, _ := filepath.Glob(filepath.Join(c.inner(), "*.pid")); len(pids) == 2 {
				cancel(stop)
				return
			}
		}
	}()
	if err := c.Up(ctx, DefaultSettings()); !errors.Is(err, stop) {
		t.Errorf("error %v, want %v", err, stop)
	}
	checkNothingLeft(t, c)
}

func TestUpOfMissingExecutable(t *testing.T) {
	c := clusterOf(t, "")
	c.Executable = "/does/not/exist"
	if err := c.Up(context.Background(), DefaultSettings()); err == nil || !strings.Contains(err.Error(), "etcd could not be started") {
		t.Errorf("error %v", err)
	}
}

func TestUpRefusesDirectoryInUse(t *testing.T) {
	self, err := process.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	c := remember(t, clusterOf(t, "exec sleep 600"), State{Running: true, Processes: map[Component]process.Identity{Scheduler: self}})
	err = c.Up(context.Background(), DefaultSettings())
	if err == nil || !strings.Contains(err.Error(), "kube-scheduler") || !strings.Contains(err.Error(), "lockstep-local down --dir "+c.Dir) {
		t.Errorf("error %v, want one that names what runs and how to end it", err)
	}
}

func TestDownSparesRecycledPids(t *testing.T) {
	recycled := process.Identity{PID: os.Getpid(), Start: "long ago"}
	c := remember(t, clusterOf(t, ""), State{Running: true, Processes: map[Component]process.Identity{Etcd: recycled}})
	for _, want := range []bool{true, false} { // and again: there is nothing to end
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

func TestDrillsNeedACluster(t *testing.T) {
	c := clusterOf(t, "")
	keep := func(s Settings) (Settings, error) { return s, nil }
	_, statusErr := c.Status(context.Background())
	for name, err := range map[string]error{
		"kill":    c.Kill(context.Background(), Etcd),
		"restart": c.Restart(context.Background(), Etcd, keep),
		"status":  statusErr,
	} {
		if err == nil || !strings.Contains(err.Error(), "lockstep-local up --dir") {
			t.Errorf("%s: %v, want an error that says how to bring a cluster up", name, err)
		}
	}
}

func TestARestartWithSettingsThatAreRefused(t *testing.T) {
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
		t.Errorf("remembered: %+v, %v", after.Settings, err)
	}
}
