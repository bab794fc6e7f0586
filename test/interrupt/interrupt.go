// Package interrupt checks that programs end when they are told to, whatever they wait for.
package interrupt

import (
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
)

// asProgram makes the binary of the tests the program.
const asProgram = "LOCKSTEP_TEST_AS_PROGRAM"

// Main runs the program in place of the tests in a process that Program started.
func Main(m *testing.M, program func()) {
	if os.Getenv(asProgram) != "" {
		program()
		return
	}
	os.Exit(m.Run())
}

// Program returns the program with arguments, in a directory of its own and with no cluster configured.
func Program(t *testing.T, args ...string) *exec.Cmd {
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
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	isBlocked := make(chan struct{})
	go func() { blocked(); close(isBlocked) }()
	select {
	case <-isBlocked:
	case err := <-ended:
		t.Fatalf("%v ended by itself: %v", program.Args[1:], err)
	}
	began := time.Now()
	if err := program.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
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

// Commands returns the arguments of every command below root that has none below it. lines has them by its path, which
// begins with the name of root.
func Commands(t *testing.T, root *cobra.Command, lines map[string]string) (all [][]string) {
	for _, c := range root.Commands() {
		all = append(all, Commands(t, c, lines)...)
	}
	if root.HasSubCommands() {
		return all
	}
	line, known := lines[root.CommandPath()]
	if !known {
		t.Errorf("no arguments of %q are known", root.CommandPath())
	}
	return append(all, strings.Fields(line))
}
