//go:build linux

package program

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"lockstep.dev/lockstep/test/expect"
)

// asProgram makes the binary of the tests the program.
const asProgram = "LOCKSTEP_TEST_AS_PROGRAM"

// Main runs the program in place of the tests in a process that Command started.
func Main(m *testing.M, program func()) {
	if os.Getenv(asProgram) != "" {
		program()
		return
	}
	os.Exit(m.Run())
}

// Command returns the program with arguments, in a directory of its own and with no cluster configured.
func Command(t *testing.T, args ...string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), asProgram+"=1", "HOME="+c.Dir, "KUBECONFIG="+filepath.Join(c.Dir, "none"), "KUBERNETES_SERVICE_HOST=")
	return c
}

// Signals end programs.
var Signals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}

// Ends starts a program, and fails unless it ends within a second of a signal. blocked returns once it waits.
func Ends(t *testing.T, program *exec.Cmd, signal syscall.Signal, blocked func()) {
	t.Helper()
	expect.OK(t, program.Start())
	ended := make(chan struct{})
	var result error
	go func() { result = program.Wait(); close(ended) }()
	isBlocked := make(chan struct{})
	go func() { blocked(); close(isBlocked) }()
	select {
	case <-isBlocked:
	case <-ended:
		t.Fatalf("%v ended by itself: %v", program.Args[1:], result)
	}
	began := time.Now()
	expect.OK(t, program.Process.Signal(signal))
	select {
	case <-ended:
		t.Logf("ended %s after %s", time.Since(began).Round(time.Millisecond), signal)
	case <-time.After(time.Second):
		t.Errorf("%v still runs a second after %s", program.Args[1:], signal)
		_ = program.Process.Kill()
		<-ended
	}
}

// Mute returns an API server that answers some paths. A request without an answer is one in asked.
func Mute(t *testing.T, answers map[string]string) (server *httptest.Server, asked chan string) {
	end := make(chan struct{})
	asked = make(chan string, 1000)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.URL.Path]
		if !found {
			asked <- r.URL.Path
			<-end
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(func() { close(end); server.CloseClientConnections(); server.Close() })
	return server, asked
}

// Leaves returns the arguments of every command below root that has none below it. lines has them by its path.
func Leaves(t *testing.T, root *cobra.Command, lines map[string]string) (all [][]string) {
	for _, c := range root.Commands() {
		all = append(all, Leaves(t, c, lines)...)
	}
	if root.HasSubCommands() {
		return all
	}
	line, known := lines[root.CommandPath()]
	expect.That(t, known, "no arguments of %q are known", root.CommandPath())
	return append(all, strings.Fields(line))
}

// mostMemory is how many MiB a program may take, and lastMemory is where the system refuses more.
const mostMemory, lastMemory = 256, 4096

// Fails runs a program, and expects it to fail with a text in little memory.
func Fails(t *testing.T, program *exec.Cmd, text string) {
	t.Helper()
	limited := exec.CommandContext(t.Context(), "/bin/sh", append([]string{
		"-c", fmt.Sprintf(`ulimit -v %d && exec "$0" "$@"`, lastMemory<<10),
	}, program.Args...)...)
	limited.Dir, limited.Env, limited.Stdin = program.Dir, program.Env, program.Stdin
	out, err := limited.CombinedOutput()
	expect.That(t, err != nil && strings.Contains(string(out), text),
		"%v: got %v, %.500s; want %q", program.Args[1:], err, out, text)
	took := limited.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10
	expect.That(t, took <= mostMemory, "%v took %d MiB, want at most %d", program.Args[1:], took, mostMemory)
}

// Endless returns paths that have no end: a device, and a pipe that is always written to.
func Endless(t *testing.T) []string {
	path := filepath.Join(t.TempDir(), "pipe.yaml")
	expect.OK(t, syscall.Mkfifo(path, 0o600))
	go func() {
		for pipe, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil; {
			_, err = pipe.WriteString("# a comment\n")
		}
	}()
	return []string{"/dev/zero", path}
}

// Bomb writes a YAML text of a few kilobytes that says gigabytes, and returns its path.
func Bomb(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "bomb.yaml")
	text := "a: &a " + strings.Repeat("x", 400<<10) + "\nb: [" + strings.Repeat("*a,", 20<<10) + "]\n"
	expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
