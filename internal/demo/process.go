package demo

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is one process in one boot of this machine. A pid alone is not enough:
// the kernel gives the same number to a stranger later.
type process struct {
	PID int `json:"pid"`
	// Start is opaque, and compares only for equality.
	Start string `json:"start"`
}

// errGone says that no live process has the pid.
var errGone = errors.New("no such process")

// stopPatience is how long a process may take to end when it is asked to.
const stopPatience = 15 * time.Second

// detach starts a program that outlives this one, with its output in a file.
// ended is closed when it is gone.
func detach(log, program string, args ...string) (p process, ended <-chan struct{}, err error) {
	out, err := os.Create(log)
	if err != nil {
		return p, nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return p, nil, err
	}
	gone := make(chan struct{})
	start, err := startOf(cmd.Process.Pid) // before Wait: the pid cannot be a stranger's yet
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	if err != nil {
		_ = cmd.Process.Kill()
		return p, nil, err
	}
	return process{PID: cmd.Process.Pid, Start: start}, gone, nil
}

// alive tells whether exactly this process still runs.
func (p process) alive() bool {
	if p.PID <= 0 || p.Start == "" {
		return false
	}
	start, err := startOf(p.PID)
	return err == nil && start == p.Start
}

// stop asks the process to end, and kills it if it has not done so in time. It
// returns when the process is gone.
func (p process) stop(ctx context.Context) error {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !p.alive() {
			return nil
		}
		if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		if err := p.awaitEnd(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return errors.New("it does not end")
}

// awaitEnd polls, because only a parent can wait for a process otherwise.
func (p process) awaitEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	for p.alive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
