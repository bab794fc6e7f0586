package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Operator is lockstep run, as a process that can be killed at any moment.
type Operator struct {
	Program    string
	Kubeconfig string // of an administrator, who installs
	Log        string
	Webhooks   int // port
	Probes     int // port
	Reaper     *Reaper
	// Env is added to the environment.
	Env []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// Install applies the manifests of the operator to the cluster, with additional flags.
func (o *Operator) Install(flags ...string) error {
	out, err := exec.Command(o.Program, append([]string{"install", "--kubeconfig", o.Kubeconfig,
		"--webhook-url", "https://127.0.0.1:" + strconv.Itoa(o.Webhooks)}, flags...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("lockstep install: %w\n%s", err, out)
	}
	return o.AwaitRoles()
}

// Start starts the operator as its service account, with additional flags, and returns when it is
// ready.
func (o *Operator) Start(flags ...string) error {
	kubeconfig, err := o.accountKubeconfig()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(o.Program, append([]string{"run", "--kubeconfig", kubeconfig,
		"--webhook-port", strconv.Itoa(o.Webhooks),
		"--health-probe-bind-address", "127.0.0.1:" + strconv.Itoa(o.Probes),
		"--metrics-bind-address", "0", "--leader-elect=false"}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), o.Env...)
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	running, ended := context.WithCancel(context.Background())
	go func() { _ = cmd.Wait(); close(exited); ended() }()
	o.mu.Lock()
	o.cmd, o.exited = cmd, exited
	o.mu.Unlock()
	if err := o.Reaper.Note("operator", o.Log, strconv.Itoa(cmd.Process.Pid)); err != nil {
		return err
	}
	if err := Poll(running, o.Ready); err != nil {
		return fmt.Errorf("the operator is not ready: %w\n%s", errors.Join(err, running.Err()), LastLines(o.Log, 40))
	}
	return nil
}

// Kill ends the operator with SIGKILL: the operator cannot finish anything.
func (o *Operator) Kill() error {
	cmd, exited := o.process()
	if err := cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the operator: %w", err)
	}
	<-exited
	return nil
}

// End ends the operator with SIGTERM, as a kubelet does.
func (o *Operator) End() error {
	cmd, exited := o.process()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end the operator: %w", err)
	}
	select {
	case <-exited:
		return nil
	case <-time.After(Patience):
		return errors.New("the operator does not end")
	}
}

// PID returns the process ID of the operator.
func (o *Operator) PID() int {
	cmd, _ := o.process()
	return cmd.Process.Pid
}

func (o *Operator) process() (*exec.Cmd, chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cmd, o.exited
}

// Ready returns an error unless the operator reports that it is ready.
func (o *Operator) Ready() error {
	for _, path := range []string{"/healthz", "/readyz"} {
		answer, err := http.Get("http://127.0.0.1:" + strconv.Itoa(o.Probes) + path)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.Join(err, fmt.Errorf("%s: %s: %s", path, answer.Status, text))
		}
	}
	return nil
}
