package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience bounds every wait for something that must come.
const patience = 2 * time.Minute

// program is the path of a program of ours.
func (d *demo) program(name string) string { return filepath.Join(d.Bin, name) }

func (d *demo) checkPrograms() error {
	for _, name := range []string{"lockstep", "lockstep-local", "kubectl-lockstep"} {
		if _, err := os.Stat(d.program(name)); err != nil {
			return fmt.Errorf("%s is missing: run make build", d.program(name))
		}
	}
	return nil
}

// bringUp starts the control plane. It tells of its own progress.
func (d *demo) bringUp(ctx context.Context) error {
	return d.local(ctx, "up", "--dir", d.place.cluster())
}

// local runs lockstep-local. Its output goes straight to a file: a pipe would
// stay open for as long as any component lives.
func (d *demo) local(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, d.program("lockstep-local"), args...)
	cmd.Stderr = os.Stderr
	if out, ok := d.Out.(*os.File); ok {
		cmd.Stderr = out
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends what it started
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("lockstep-local %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// install makes the cluster know sets, and says where the webhooks are.
func (d *demo) install(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, d.program("lockstep"), "install", "--kubeconfig", d.place.kubeconfig(),
		"--webhook-url", "https://"+d.webhooks)
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return fmt.Errorf("lockstep install: %w\n%s", err, strings.Join(lines, "\n"))
	}
	d.say("%s", lines[len(lines)-1])
	return nil
}

// operate starts the operator, which outlives this process, and returns when it
// is ready.
func (d *demo) operate(ctx context.Context) error {
	host, port, err := net.SplitHostPort(d.webhooks)
	if err != nil {
		return err
	}
	operator, ended, err := detach(d.place.log(), d.program("lockstep"), "run", "--kubeconfig", d.place.kubeconfig(),
		"--webhook-host", host, "--webhook-port", port,
		"--health-probe-bind-address", d.probes, "--metrics-bind-address", "0", "--leader-elect=false")
	if err != nil {
		return fmt.Errorf("start the operator: %w", err)
	}
	d.operator = operator
	if err := d.place.save(state{Operator: operator}); err != nil {
		return err
	}
	go func() {
		<-ended
		d.fail(errors.New("the operator ended by itself"))
	}()
	if err := d.awaitReady(ctx); err != nil {
		return err
	}
	d.say("ready, process %d, log in %s", operator.PID, d.place.log())
	return nil
}

func (d *demo) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the operator does not get ready"))
	defer cancel()
	for {
		if ready(ctx, "http://"+d.probes+"/readyz") {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func ready(ctx context.Context, url string) bool {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode == http.StatusOK
}

// freeAddresses finds addresses on loopback that nobody listens on.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // together, so that none is found twice
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// lastLines returns the end of a text file.
func lastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
