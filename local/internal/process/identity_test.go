package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// background starts a shell script through Start and ends it with the test.
func background(t *testing.T, script string) (*Child, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	child, err := Start(Command{
		Path: "/bin/sh", Args: []string{"script", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: t.TempDir(), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Kill(context.Background()); <-child.Ended() })
	return child, log
}

func TestIdentityNamesOneProcess(t *testing.T) {
	self, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !self.Alive() {
		t.Error("this process does not count as alive")
	}
	for name, other := range map[string]Identity{
		"same pid, another start": {PID: self.PID, Start: self.Start + "1"},
		"no start":                {PID: self.PID},
		"zero":                    {},
		"process group":           {PID: -self.PID, Start: self.Start},
	} {
		if other.Alive() {
			t.Errorf("%s: %+v counts as alive", name, other)
		}
	}
}

func TestRecycledPidIsNotKilled(t *testing.T) {
	stranger, _ := background(t, "exec sleep 600")
	remembered := Identity{PID: stranger.PID, Start: "a process that ended long ago"}
	if err := remembered.Kill(context.Background()); err != nil {
		t.Errorf("Kill of a process long gone: %v", err)
	}
	if err := remembered.Stop(context.Background(), time.Minute); err != nil {
		t.Errorf("Stop of a process long gone: %v", err)
	}
	if !stranger.Alive() {
		t.Error("the stranger that bears the pid now was ended")
	}
}

func TestKillEnds(t *testing.T) {
	child, _ := background(t, "exec sleep 600")
	if err := child.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	if child.Alive() {
		t.Error("alive after Kill")
	}
	<-child.Ended()
	if got, want := child.Outcome(), "signal: killed"; got != want {
		t.Errorf("Outcome() = %q, want %q", got, want)
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	child, log := background(t, `trap "" TERM; echo deaf; while :; do sleep 0.05; done`)
	awaitLine(t, log, "deaf")
	if err := child.Stop(context.Background(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	<-child.Ended()
	if got, want := child.Outcome(), "signal: killed"; got != want {
		t.Errorf("Outcome() = %q, want %q", got, want)
	}
}

func TestStopLetsEndInGoodOrder(t *testing.T) {
	child, log := background(t, `trap "exit 7" TERM; echo ready; while :; do sleep 0.05; done`)
	awaitLine(t, log, "ready")
	if err := child.Stop(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	<-child.Ended()
	if got, want := child.Outcome(), "exit status 7"; got != want {
		t.Errorf("Outcome() = %q, want %q", got, want)
	}
}

func TestKillHeedsItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	self, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.awaitEnd(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("awaitEnd of a live process under an ended context: %v", err)
	}
}

func TestZombieIsNotAlive(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	// Its parent does not wait for it yet, so it stays a zombie: awaitEnd would not return
	// if that counted as alive.
	if err := id.Kill(context.Background()); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
}

func TestChildHasASessionOfItsOwn(t *testing.T) {
	child, _ := background(t, "exec sleep 600")
	group, err := syscall.Getpgid(child.PID)
	if err != nil {
		t.Fatal(err)
	}
	if group != child.PID {
		t.Errorf("process group %d, want the child's own, %d", group, child.PID)
	}
}

func TestStartReportsWhatCannotRun(t *testing.T) {
	_, err := Start(Command{Path: "/does/not/exist", Args: []string{"etcd"}, Dir: t.TempDir(), Log: filepath.Join(t.TempDir(), "log")})
	if err == nil || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("error %v, want one that names etcd", err)
	}
}

// awaitLine returns when the log's last line is as wanted.
func awaitLine(t *testing.T, log, want string) {
	t.Helper()
	for {
		lines, err := Tail(log, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(lines) == 1 && lines[0] == want {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
