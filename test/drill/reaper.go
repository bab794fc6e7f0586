package drill

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ReaperEnv is the environment variable of a reaper process: with it, the main of a test binary
// calls Reap.
const ReaperEnv = "LOCKSTEP_DRILL_REAPER"

// A Reaper ends all processes of a run after the run. It is a process of its own that
// waits for the end of its input: a run that panics, times out or is killed also closes
// that input.
//
//	operator LOG PID  this operator runs now, in place of the earlier one with the log
//	plane BIN DIR     this control plane is up
type Reaper struct {
	in  io.WriteCloser
	cmd *exec.Cmd
	log string
}

// StartReaper starts the reaper. Its output goes to a file in dir.
func StartReaper(dir string) (*Reaper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "reaper.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), ReaperEnv+"=1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C must not end it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &Reaper{in: in, cmd: cmd, log: log.Name()}, cmd.Start()
}

// Note sends the reaper one line about a process to end.
func (r *Reaper) Note(fields ...string) error {
	_, err := fmt.Fprintln(r.in, strings.Join(fields, "\t"))
	return err
}

// Finish closes the reaper's input and waits until it has ended all processes.
func (r *Reaper) Finish() error {
	r.in.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("end all processes: %w\n%s", err, LastLines(r.log, 20))
	}
	return nil
}

// Reap is the reaper's side: it reads lines until the end of in, then ends the processes. It
// kills operators first, so that they do not see the API server stop.
func Reap(in io.Reader) error {
	pids := map[string]int{} // the last process of each operator, by its log
	var planes [][]string
	for lines := bufio.NewScanner(in); lines.Scan(); {
		switch fields := strings.Split(lines.Text(), "\t"); fields[0] {
		case "operator":
			pids[fields[1]], _ = strconv.Atoi(fields[2])
		case "plane":
			planes = append(planes, []string{fields[1], "down", "--dir", fields[2]})
		}
	}
	for _, pid := range pids {
		if pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the operator may have ended already
		}
	}
	var errs []error
	for _, plane := range planes {
		down := exec.Command(plane[0], plane[1:]...)
		down.Stdout, down.Stderr = os.Stdout, os.Stderr
		errs = append(errs, down.Run())
	}
	return errors.Join(errs...)
}
