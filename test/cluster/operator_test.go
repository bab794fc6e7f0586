package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// operator is lockstep run, as a process that can be killed at any moment.
type operator struct {
	program    string
	kubeconfig string
	log        string
	webhooks   int // port
	probes     int // port
	reaper     *reaper

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd is gone
}

// install applies what the operator needs in the cluster.
func (o *operator) install() error {
	out, err := exec.Command(o.program, "install", "--kubeconfig", o.kubeconfig,
		"--webhook-url", "https://127.0.0.1:"+strconv.Itoa(o.webhooks)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("lockstep install: %w\n%s", err, out)
	}
	return nil
}

// start starts the operator and returns when it says it is ready.
func (o *operator) start() error {
	log, err := os.OpenFile(o.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(o.program, "run", "--kubeconfig", o.kubeconfig,
		"--webhook-port", strconv.Itoa(o.webhooks),
		"--health-probe-bind-address", "127.0.0.1:"+strconv.Itoa(o.probes),
		"--metrics-bind-address", "0", "--leader-elect=false")
	cmd.Stdout, cmd.Stderr = log, log
	if !soak() { // it costs time, and a cache that is written to ends the operator
		cmd.Env = append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=true")
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	o.mu.Lock()
	o.cmd, o.exited = cmd, exited
	o.mu.Unlock()
	if err := o.reaper.note("operator", strconv.Itoa(cmd.Process.Pid)); err != nil {
		return err
	}
	return o.awaitReady(exited)
}

// kill ends the operator with SIGKILL: it gets no chance to finish anything.
func (o *operator) kill() error {
	cmd, exited := o.process()
	if err := cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the operator: %w", err)
	}
	<-exited
	return nil
}

// check returns an error when the operator does not run or is not ready.
func (o *operator) check() error {
	_, exited := o.process()
	select {
	case <-exited:
		return fmt.Errorf("the operator is gone:\n%s", lastLines(o.log, 40))
	default:
		return o.ready()
	}
}

// pid tells one life of the operator from another.
func (o *operator) pid() int {
	cmd, _ := o.process()
	return cmd.Process.Pid
}

func (o *operator) process() (*exec.Cmd, chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cmd, o.exited
}

func (o *operator) awaitReady(exited chan struct{}) error {
	deadline := time.After(patience)
	for {
		err := o.ready()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("the operator ended before it was ready:\n%s", lastLines(o.log, 40))
		case <-deadline:
			return fmt.Errorf("the operator does not get ready: %w\n%s", err, lastLines(o.log, 40))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (o *operator) ready() error {
	for _, path := range []string{"/healthz", "/readyz"} {
		answer, err := http.Get("http://127.0.0.1:" + strconv.Itoa(o.probes) + path)
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
