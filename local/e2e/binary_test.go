// Package e2e runs the built binary as a user does. It knows commands, output and files, and
// refuses to import the code that it tests.
package e2e

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// binary returns the path of lockstep-local, which make builds before: a build takes minutes, and the
// test must use the same binary as users.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("LOCKSTEP_LOCAL")
	if path == "" {
		t.Fatal("LOCKSTEP_LOCAL is not set: build the binary with `make build`, then set LOCKSTEP_LOCAL to the absolute path of bin/lockstep-local")
	}
	if !filepath.IsAbs(path) {
		t.Fatalf("LOCKSTEP_LOCAL is %q: give an absolute path", path)
	}
	return path
}

// call is the result of one command.
type call struct {
	code           int
	stdout, stderr string
}

func run(t *testing.T, name string, args ...string) call {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return call{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// must runs a command that must succeed, and returns its standard output.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	c := run(t, name, args...)
	if c.code != 0 {
		t.Fatalf("%s %s: exit %d\n%s%s", filepath.Base(name), strings.Join(args, " "), c.code, c.stdout, c.stderr)
	}
	return c.stdout
}

// refused runs a command that must fail and print all of says.
func refused(t *testing.T, says []string, args ...string) {
	t.Helper()
	c := run(t, binary(t), args...)
	if c.code != 1 {
		t.Errorf("%s: exit %d, want 1", strings.Join(args, " "), c.code)
	}
	for _, part := range says {
		if !strings.Contains(c.stderr, part) {
			t.Errorf("%s: stderr does not say %q:\n%s", strings.Join(args, " "), part, c.stderr)
		}
	}
}

// cluster is a cluster in a directory.
type cluster struct{ dir string }

// newCluster returns a cluster that is ended when the test ends.
func newCluster(t *testing.T) *cluster {
	c := &cluster{filepath.Join(t.TempDir(), "cluster")}
	t.Cleanup(func() {
		if out, err := exec.Command(binary(t), "down", "--dir", c.dir).CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	})
	return c
}

// port returns the API server's port, or 0 before there is one.
func (c *cluster) port() int {
	var state struct{ Ports struct{ KubeAPIServer int } }
	if data, err := os.ReadFile(filepath.Join(c.dir, "cluster.json")); err != nil || json.Unmarshal(data, &state) != nil {
		return 0
	}
	return state.Ports.KubeAPIServer
}

// portsFree reports whether the six ports from base have no listener.
func portsFree(base int) bool {
	for port := base; port < base+6; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

func (c *cluster) up(t *testing.T, flags ...string) string {
	t.Helper()
	args := append([]string{"up", "--dir", c.dir}, flags...)
	return must(t, binary(t), args...)
}

func (c *cluster) do(t *testing.T, command ...string) string {
	t.Helper()
	return must(t, binary(t), append(command, "--dir", c.dir)...)
}

func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, binary(t), append([]string{"kubectl", "--kubeconfig", filepath.Join(c.dir, "kubeconfig")}, args...)...)
}

func (c *cluster) apply(t *testing.T, manifest string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "apply", "-f", path)
}

// status is the part of status -o json that the tests read.
type status struct {
	Components []struct {
		Name, State string
		PID         int
	}
	Nodes *struct{ Ready, Total int }
}

func (c *cluster) status(t *testing.T) (s status, code int) {
	t.Helper()
	out := run(t, binary(t), "status", "--dir", c.dir, "-o", "json")
	if err := json.Unmarshal([]byte(out.stdout), &s); err != nil {
		t.Fatalf("status: %v\n%s%s", err, out.stdout, out.stderr)
	}
	return s, out.code
}

func (s status) state(component string) string {
	for _, c := range s.Components {
		if c.Name == component {
			return c.State
		}
	}
	return "not listed"
}

// eventually calls ask until it returns true. Only the timeout of go test limits it.
func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for !ask() {
		select {
		case <-t.Context().Done():
			t.Fatalf("never happened: %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
