package process

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Child is a started process, as its parent sees it.
type Child struct {
	Identity
	// Ended is closed when the child has ended.
	Ended chan struct{}
	err   error
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
	child := &Child{Ended: make(chan struct{})}
	// It is identified before the wait: until then even a dead child keeps its pid.
	child.Identity, err = Identify(cmd.Process.Pid)
	go func() {
		child.err = cmd.Wait()
		close(child.Ended)
	}()
	if err != nil {
		<-child.Ended
		return nil, fmt.Errorf("%s ended at once (%s)", cmd.Args[0], child.Outcome())
	}
	return child, nil
}

// Outcome is how the child ended, for example "exit status 1". It may be called only after Ended
// is closed.
func (c *Child) Outcome() string {
	if c.err == nil {
		return "exit status 0"
	}
	return c.err.Error()
}
