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

// ReaperEnv is the variable that has a test binary act as the reaper: its main then calls Reap.
const ReaperEnv = "LOCKSTEP_DRILL_REAPER"

// A Reaper ends everything a run has started once the run is over. It is a
// process of its own that waits for the end of its input: a run that panics, times
// out or is killed closes that input as surely as one that ends well.
//
//	operator PID     this operator runs now; an earlier one does not any more
//	plane BIN DIR    this control plane is up
type Reaper struct {
	in  io.WriteCloser
	cmd *exec.Cmd
	log string
}

// StartReaper starts the reaper. What it has to say goes to a file under dir.
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is not for it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &Reaper{in: in, cmd: cmd, log: log.Name()}, cmd.Start()
}

// Note tells the reaper what is there to be ended.
func (r *Reaper) Note(words ...string) error {
	_, err := fmt.Fprintln(r.in, strings.Join(words, "\t"))
	return err
}

// Finish lets the reaper do its work and waits for it.
func (r *Reaper) Finish() error {
	r.in.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("take everything down: %w\n%s", err, LastLines(r.log, 20))
	}
	return nil
}

// Reap is the reaper's side: it reads what is there until the end of in, then
// ends it. The operator goes first, so that it does not see the API server go.
func Reap(in io.Reader) error {
	pids := map[string]int{} // the last process of each operator, by its log
	var planes [][]string
	for lines := bufio.NewScanner(in); lines.Scan(); {
		switch words := strings.Split(lines.Text(), "\t"); words[0] {
		case "operator":
			pids[words[1]], _ = strconv.Atoi(words[2])
		case "plane":
			planes = append(planes, []string{words[1], "down", "--dir", words[2]})
		}
	}
	for _, pid := range pids {
		if pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // an operator that ended before is fine
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
