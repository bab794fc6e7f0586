package docs

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep.dev/lockstep/test/drill"
)

var must = drill.Must

// limit is how long a page may take. Builds are the slowest.
const limit = 30 * time.Minute

// Every command of the documentation ends well.
func TestPages(t *testing.T) {
	programs := os.Getenv("LOCKSTEP_DOCS")
	if programs == "" {
		t.Skip("LOCKSTEP_DOCS names no directory of programs: run \"make docs\"")
	}
	for _, p := range pages(t) {
		t.Run(p.name(), func(t *testing.T) {
			parts := planned(t, p)
			if t.Failed() {
				return
			}
			if slices.ContainsFunc(parts, part.isRun) {
				newSession(t, p, programs).play(parts)
			}
			if !t.Failed() {
				t.Log(report(p, parts))
			}
		})
	}
}

// report says how many blocks ran, and which commands a reader types and the test does not.
func report(p page, parts []part) string {
	run, rest := 0, ""
	for _, part := range parts {
		if part.isRun() {
			run++
		}
		for _, s := range part.steps {
			if s.reason != "" {
				rest += fmt.Sprintf("\n%s:%d is left out: %s: %s", p.path, part.line, s.command, s.reason)
			} else if s.function != "" {
				rest += fmt.Sprintf("\n%s:%d is run by %s: %s", p.path, part.line, s.function, s.command)
			}
		}
	}
	return fmt.Sprintf("%s: %d blocks run, %d not run%s", p.path, run, len(parts)-run, rest)
}

// A session is one bash, in a copy of the repository.
type session struct {
	*testing.T
	page, dir, log string
	env            []string
}

func newSession(t *testing.T, p page, programs string) *session {
	dir := filepath.Join(os.Getenv("LOCKSTEP_KEEP"), p.name())
	if os.Getenv("LOCKSTEP_KEEP") == "" {
		dir = t.TempDir()
	}
	above, err := filepath.Abs(root)
	must(t, err)
	s := &session{T: t, page: p.path, dir: filepath.Join(dir, "lockstep"), log: filepath.Join(dir, "output")}
	must(t, os.RemoveAll(s.dir))
	must(t, os.MkdirAll(filepath.Join(dir, "home"), 0o755))
	// What is not committed yet is tried as well.
	output(t, "bash", "-ec", `git clone --quiet --shared "$0" "$1"; git -C "$0" diff --binary HEAD | git -C "$1" apply --allow-empty
		cp testdata/* "$1/.."`, above, s.dir)
	for i, text := range yamls(p) {
		must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i+1)+".yaml"), []byte(text+"\n"), 0o644))
	}
	ports, err := drill.FreePorts(3)
	must(t, err)
	s.env = append(os.Environ(), "HOME="+filepath.Join(dir, "home"), "KUBECONFIG=", "MAKEFLAGS=", "MAKELEVEL=",
		"PATH="+programs+":"+os.Getenv("PATH"), "BUILT="+filepath.Join(above, "bin"), "PAGE="+p.name(), "EGRESS="+s.egress(ports[0]),
		"WEBHOOKS="+strconv.Itoa(ports[0]), "PROBES="+strconv.Itoa(ports[1]), "REGISTRY="+strconv.Itoa(ports[2]))
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		s.env = append(s.env, name+"="+output(t, "go", "env", name))
	}
	return s
}

// egress is the socket of a proxy: through it, the API server reaches the operator at a port of this machine where it
// asks for a Service. Pods are simulated, and behind a Service of pods nothing answers.
func (s *session) egress(port int) string {
	dir, err := os.MkdirTemp("", "docs") // the path of a socket has at most 107 bytes
	must(s.T, err)
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "egress")
	listener, err := net.Listen("unix", socket)
	must(s.T, err)
	s.Cleanup(func() { _ = listener.Close() })
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			drill.Tunnel(w, r, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		}))
	}()
	return socket
}

// script is what bash runs: it tells file 3 about each block. A list such as "a && b" does not end bash by itself.
func script(parts []part) string {
	var out strings.Builder
	out.WriteString(". ../session.sh\n. \"../$PAGE.sh\"\nbegin\n")
	for _, part := range parts {
		fmt.Fprintf(&out, "echo %d >&3\n", part.line)
		for _, s := range part.steps {
			if s.reason == "" {
				fmt.Fprintf(&out, "say '%s'\n%s\n[ $? = 0 ]\n", strings.ReplaceAll(s.script, "'", `'\''`), s.script)
			}
		}
	}
	return out.String()
}

// play runs the parts. Bash and all that it started end with the input of file 4, also if this process is killed:
// see session.sh. File 3 is then at its end.
func (s *session) play(parts []part) {
	file := filepath.Join(filepath.Dir(s.dir), "script")
	must(s.T, os.WriteFile(file, []byte(script(parts)), 0o644))
	log, err := os.Create(s.log)
	must(s.T, err)
	defer log.Close()
	told, tell, err := os.Pipe()
	must(s.T, err)
	lives, life, err := os.Pipe()
	must(s.T, err)
	bash := exec.Command("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", file)
	bash.Dir, bash.Env, bash.Stdout, bash.Stderr = s.dir, s.env, log, log
	bash.ExtraFiles = []*os.File{tell, lives}
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(s.T, bash.Start())
	_, _ = tell.Close(), lives.Close()

	overdue := time.AfterFunc(limit, func() { _ = bash.Process.Kill() })
	fault := bash.Wait()
	overdue.Stop()
	_ = life.Close()
	must(s.T, told.SetReadDeadline(time.Now().Add(drill.Patience)))
	blocks, err := io.ReadAll(told)
	if err != nil {
		s.Errorf("%s: processes do not end: %v", s.page, err)
	}
	if fault != nil {
		at := append([]string{"begin"}, strings.Fields(string(blocks))...)
		s.Errorf("%s:%s: %v; the end of the output:\n%s", s.page, at[len(at)-1], fault, drill.LastLines(s.log, 60))
	}
}

// output returns what a program prints.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	command := exec.Command(program, args...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s %q: %v", program, args, err)
	}
	return strings.TrimSpace(string(out))
}
