// Package process knows single processes of this machine: how to start one that outlives its parent, how to recognise
// it later, how to end it, and what it wrote last. It refuses to know what the processes are for.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Identity is one process in one boot of this machine. A pid alone is not
// enough: the kernel gives the same number to another process later.
type Identity struct {
	PID int `json:"pid"`
	// Start tells apart processes that bore the same pid. It is opaque, and compares only for equality.
	Start string `json:"start"`
}

// errGone says that no live process has the pid.
var errGone = errors.New("no such process")

// Identify returns the identity of the live process with this pid. A zombie is
// not alive: it holds nothing but its number.
func Identify(pid int) (Identity, error) {
	start, err := startOf(procfs.DefaultMountPoint, pid)
	return Identity{PID: pid, Start: start}, err
}

// startOf returns the start of a process in ticks since boot, and the boot's id: ticks begin again with every boot. A
// process whose first thread is a zombie holds its files and ports for as long as other threads of it are on their way
// out.
func startOf(root string, pid int) (string, error) {
	proc, err := procfs.NewFS(root)
	if err != nil {
		return "", err
	}
	process, err := proc.Proc(pid)
	if err != nil {
		return "", errGone
	}
	stat, err := process.Stat()
	if hasEnded := (stat.State == "Z" || stat.State == "X") && stat.NumThreads <= 1; err != nil || hasEnded {
		return "", errGone
	}
	boot, err := os.ReadFile(filepath.Join(root, "sys/kernel/random/boot_id"))
	return fmt.Sprintf("%s/%d", strings.TrimSpace(string(boot)), stat.Starttime), err
}

// Alive reports whether exactly this process still runs.
func (i Identity) Alive() bool {
	now, err := Identify(i.PID)
	return err == nil && now == i
}

// signal sends sig to exactly this process, and does nothing if it is gone.
func (i Identity) signal(sig syscall.Signal) error {
	// The handle is taken before the identity is compared: where the kernel
	// has process handles, the signal cannot reach a later owner of the pid.
	handle, err := os.FindProcess(i.PID)
	if err != nil {
		return nil
	}
	defer handle.Release()
	if !i.Alive() {
		return nil
	}
	if err = handle.Signal(sig); errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Kill ends the process at once and returns when it is gone.
func (i Identity) Kill(ctx context.Context) error {
	if err := i.signal(syscall.SIGKILL); err != nil {
		return err
	}
	return i.awaitEnd(ctx)
}

// Stop asks the process to end, and kills it if it has not done so within
// patience. It returns when the process is gone.
func (i Identity) Stop(ctx context.Context, patience time.Duration) error {
	if err := i.signal(syscall.SIGTERM); err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if i.awaitEnd(patient) == nil {
		return nil
	}
	return i.Kill(ctx)
}

// awaitEnd polls, because only a parent can wait for a process otherwise.
func (i Identity) awaitEnd(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) { return !i.Alive(), nil })
}

// Child is a started process, as its parent sees it.
type Child struct {
	Identity
	// Ended is closed when the child has ended.
	Ended chan struct{}
	cmd   *exec.Cmd
}

// Start starts a command in a session of its own, so that neither the end of this process nor an
// interrupt typed at its terminal ends the child. Its output is appended to a log.
func Start(cmd *exec.Cmd, log string) (*Child, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = file, file, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Args[0], err)
	}
	child := &Child{Ended: make(chan struct{}), cmd: cmd}
	// It is identified before the wait: until then even a dead child keeps its pid.
	child.Identity, err = Identify(cmd.Process.Pid)
	go func() {
		_ = cmd.Wait() // the outcome says how it went
		close(child.Ended)
	}()
	if err != nil {
		<-child.Ended
		return nil, fmt.Errorf("%s ended at once (%s)", cmd.Args[0], child.Outcome())
	}
	return child, nil
}

// Outcome is how the child ended, for example "exit status 1". It may be called only after Ended is closed.
func (c *Child) Outcome() string { return c.cmd.ProcessState.String() }

// Tail returns up to n last lines of a file, oldest first. A file that cannot be read has no lines.
func Tail(path string, n int) []string {
	data, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if lines[0] == "" && len(lines) == 1 {
		return nil
	}
	return lines[max(0, len(lines)-n):]
}
