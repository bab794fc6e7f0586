package process

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Command is a program to start.
type Command struct {
	Path string   // the executable
	Args []string // the whole argument vector; the first is the name it is called under
	Env  []string // the whole environment
	Dir  string   // working directory
	Log  string   // file that its standard output and error are appended to
}

// Child is a started process, as its parent sees it.
type Child struct {
	Identity
	ended chan struct{}
	err   error
}

// Start starts c in a session of its own, so that neither the end of this
// process nor an interrupt typed at its terminal ends the child.
func Start(c Command) (*Child, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := &exec.Cmd{
		Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir, Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	child := &Child{ended: make(chan struct{})}
	// Read before anybody waits: until then even a dead child keeps its pid.
	child.Identity, err = Identify(cmd.Process.Pid)
	go child.wait(cmd)
	if err != nil {
		<-child.ended
		return nil, fmt.Errorf("%s ended at once (%s)", c.Args[0], child.Outcome())
	}
	return child, nil
}

func (c *Child) wait(cmd *exec.Cmd) {
	c.err = cmd.Wait()
	close(c.ended)
}

// Ended is closed when the child has ended.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Outcome says how the child ended, for example "exit status 1". It may be
// asked only after Ended is closed.
func (c *Child) Outcome() string {
	if c.err == nil {
		return "exit status 0"
	}
	return c.err.Error()
}
