package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"lockstep.dev/lockstep/test/expect"
)

// background starts a shell script with Start, and kills it when the test ends.
func background(t *testing.T, script string) (*Child, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	child, err := Start(&exec.Cmd{Path: "/bin/sh", Args: []string{"script", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: t.TempDir()}, log)
	expect.OK(t, err)
	t.Cleanup(func() { child.Kill(context.Background()); <-child.Ended })
	return child, log
}

func TestIdentityNamesOneProcess(t *testing.T) {
	self := expect.Value(Identify(os.Getpid()))(t)
	expect.That(t, self.Alive(), "Alive() of this process is false")
	for name, other := range map[string]Identity{
		"same pid, another start": {PID: self.PID, Start: self.Start + "1"},
		"no start":                {PID: self.PID},
		"zero":                    {},
		"process group":           {PID: -self.PID, Start: self.Start},
	} {
		expect.That(t, !other.Alive(), "%s: Alive() of %+v is true", name, other)
	}
}

func TestRecycledPidIsNotKilled(t *testing.T) {
	stranger, _ := background(t, "exec sleep 600")
	remembered := Identity{PID: stranger.PID, Start: "a process that ended long ago"}
	err := remembered.Kill(context.Background())
	expect.That(t, err == nil, "Kill of an ended process: %v", err)
	if err := remembered.Stop(context.Background(), time.Minute); err != nil {
		t.Errorf("Stop of an ended process: %v", err)
	}
	expect.That(t, stranger.Alive(), "the process that has the pid now was ended")
}

func TestEndOfAChild(t *testing.T) {
	kill := func(c *Child, ctx context.Context) error { return c.Kill(ctx) }
	stop := func(patience time.Duration) func(*Child, context.Context) error {
		return func(c *Child, ctx context.Context) error { return c.Stop(ctx, patience) }
	}
	for name, c := range map[string]struct {
		script string
		end    func(*Child, context.Context) error
		want   string
	}{
		"killed":           {`echo ready; exec sleep 600`, kill, "signal: killed"},
		"ignores SIGTERM":  {`trap "" TERM; echo ready; while :; do sleep 0.05; done`, stop(50 * time.Millisecond), "signal: killed"},
		"exits on SIGTERM": {`trap "exit 7" TERM; echo ready; while :; do sleep 0.05; done`, stop(time.Minute), "exit status 7"},
	} {
		child, log := background(t, c.script)
		awaitLine(t, log, "ready")
		group, err := syscall.Getpgid(child.PID)
		expect.That(t, err == nil && group == child.PID, "%s: process group %d of %d, %v", name, group, child.PID, err)
		if err := c.end(child, context.Background()); err != nil || child.Alive() {
			t.Errorf("%s: alive, %v", name, err)
		}
		<-child.Ended
		expect.Equalf(t, c.want, child.Outcome(), "%s", name)
	}
}

func TestZombieIsNotAlive(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	expect.OK(t, cmd.Start())
	id := expect.Value(Identify(cmd.Process.Pid))(t)
	// The parent does not wait for it yet, so it stays a zombie. Kill returns only if a zombie
	// is not alive.
	err := id.Kill(context.Background())
	expect.That(t, err == nil, "%v", err)
	expect.That(t, cmd.Wait() != nil, "the process ended by itself")
}

// awaitLine returns when the last line of the log is want.
func awaitLine(t *testing.T, log, want string) {
	t.Helper()
	for !slices.Equal(Tail(log, 1), []string{want}) {
		time.Sleep(5 * time.Millisecond)
	}
}

// proc returns a /proc with one process.
func proc(t *testing.T, stat string) string {
	t.Helper()
	root := t.TempDir()
	for file, text := range map[string]string{"77/stat": stat, "sys/kernel/random/boot_id": "boot\n"} {
		expect.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
		expect.OK(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o644))
	}
	return root
}

func TestStartOf(t *testing.T) {
	const rest = " 1 2 3 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 202354 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
	const threads = " 1 2 3 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 12 0 202354 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
	for name, stat := range map[string]string{
		"plain":                     "77 (etcd) S" + rest,
		"brackets in the name":      "77 (x) Z 1 2) S" + rest,
		"leader ended, threads run": "77 (etcd) Z" + threads,
	} {
		got, err := startOf(proc(t, stat), 77)
		expect.That(t, err == nil && got == "boot/202354", "%s: start %q, error %v; want boot/202354", name, got, err)
	}
	for _, stat := range []string{"77 (etcd) Z" + rest, "77 (etcd) X" + rest, "", "77", "77 (etcd", "77 (etcd) S 1 2"} {
		got, err := startOf(proc(t, stat), 77)
		expect.That(t, errors.Is(err, errGone), "%q: start %q, error %v, want %v", stat, got, err, errGone)
	}
	_, err := startOf(proc(t, ""), 78)
	expect.That(t, errors.Is(err, errGone), "another pid: error %v", err)
}
