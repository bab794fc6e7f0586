package cli

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/test/expect"
)

// run runs the plugin without any cluster configured.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	streams, in, stdout, _ := genericiooptions.NewTestIOStreams()
	in.WriteString("hello")
	cmd := NewCommand(streams)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), err
}

// Each line of arguments of the file is followed by what their error says.
func TestErrorsOfArguments(t *testing.T) {
	text := expect.Value(os.ReadFile("testdata/errors.txt"))(t)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := 0; i < len(lines); i += 2 {
		args, want := lines[i], strings.TrimSpace(lines[i+1])
		t.Run(args, func(t *testing.T) {
			out, err := run(t, strings.Fields(args)...)
			expect.That(t, err != nil && strings.Contains(err.Error(), want) && out == "",
				"got %v, printed %q; want %q", err, out, want)
		})
	}
}

func TestVersionNeedsNoCluster(t *testing.T) {
	out, err := run(t, "version")
	expect.That(t, err == nil && strings.HasPrefix(out, "Version: "), "got %q, %v", out, err)
}

// An API server may accept connections and never answer.
func TestTimeoutIncludesTheFirstRequest(t *testing.T) {
	end := make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(func() { close(end); mute.Close() })
	_, err := run(t, "rollout", "status", "a", "--server", mute.URL, "--timeout", "500ms")
	expect.ErrorSays(t, err, "timed out after 500ms")
}

func TestAWorkerMayHaveTheIndexOfItsGroup(t *testing.T) {
	names, err := setNames(&cobra.Command{}, []string{"lws/a", "1", "1"}, 2, 3)
	expect.That(t, err == nil && strings.Join(names, " ") == "a 1 1", "got %q, %v", names, err)
}

func TestCompletion(t *testing.T) {
	out, err := run(t, argument.Args([]string{"/bin/kubectl_complete-lockstep", "rollout", "re"})...)
	expect.That(t, err == nil && strings.Contains(out, "restart\t") && strings.Contains(out, "resume\t"),
		"got %q, %v", out, err)
}

// A shell waits for no cluster: without one, or beside one that does not answer, nothing is completed.
func TestACompletionIsSilentAndBounded(t *testing.T) {
	end := make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(func() { close(end); mute.Close() })
	for _, args := range []string{"status ", "plan ", "why ", "release ", "report ", "rollout undo ", "rollout diff ", "rollout history ",
		"rollout status ", "rollout undo a --to-revision ", "rollout diff a --revision ", "rollout status a --revision ", "status -n "} {
		for _, server := range []string{"", mute.URL} {
			words := []string{"__complete"}
			switch {
			case server != "" && args != "status " && args != "rollout undo a --to-revision ": // each waits
				continue
			case server != "":
				words = append(words, "--server", server)
			}
			out, err := run(t, append(words, strings.Split(args, " ")...)...)
			expect.That(t, err == nil && strings.TrimSpace(out) == ":4", "%q on %q: got %q, %v", args, server, out, err)
		}
	}
}

// A section without a command, or a command without a section, is a slip in help.txt.
func TestEveryCommandHasItsHelp(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	count, commands := 0, []*cobra.Command{NewCommand(streams)}
	for len(commands) > 0 {
		cmd := commands[0]
		commands = append(commands[1:], cmd.Commands()...)
		if count++; cmd.Use == "" || cmd.Short == "" {
			t.Errorf("%q has no help", cmd.CommandPath())
		}
	}
	expect.Equalf(t, count, strings.Count("\n"+texts, "\n== "), "the sections of help.txt")
}

// A report takes the place of nothing unless it is told to, and is never written to where a link leads.
func TestWhereAReportIsWritten(t *testing.T) {
	old := func(mode os.FileMode) func(string, string) error {
		return func(_, report string) error { return os.WriteFile(report, []byte("old"), mode) }
	}
	for name, tt := range map[string]struct {
		before        func(other, report string) error
		plain, forced bool // whether it is written
	}{
		"nothing":            {func(_, _ string) error { return nil }, true, true},
		"a file":             {old(0o644), false, true},
		"a read-only file":   {old(0o400), false, true},
		"a link to a file":   {os.Symlink, false, false},
		"a second name":      {os.Link, false, true},
		"a link to nothing":  {func(other, report string) error { return os.Symlink(other+".none", report) }, false, false},
		"a link to a device": {func(_, report string) error { return os.Symlink("/dev/null", report) }, false, false},
		"a directory":        {func(_, report string) error { return os.Mkdir(report, 0o700) }, false, false},
	} {
		for force, want := range map[bool]bool{false: tt.plain, true: tt.forced} {
			dir := t.TempDir()
			other, report := filepath.Join(dir, "other"), filepath.Join(dir, "report")
			expect.OK(t, errors.Join(os.WriteFile(other, []byte("kept"), 0o644), tt.before(other, report)))
			err := writeFile(report, bytes.NewBufferString("new"), force)
			expect.Equalf(t, want, err == nil, "%s, force %t: got %v", name, force, err)
			text, _ := os.ReadFile(other)
			expect.That(t, string(text) == "kept", "%s, force %t: another file has %q", name, force, text)
			if _, err := os.Stat(other + ".none"); err == nil {
				t.Errorf("%s, force %t: a link made a file", name, force)
			}
			if info, err := os.Lstat(report); want && (err != nil || info.Mode() != 0o600 || info.Size() != 3) {
				t.Errorf("%s, force %t: got %v, %v", name, force, info.Mode(), err)
			}
		}
	}
	expect.That(t, writeFile(filepath.Join(t.TempDir(), "none", "report"), bytes.NewBufferString("new"), false) != nil,
		"a directory was made")
}

// The directory of a report may be a link: the user chose it.
func TestADirectoryMayBeALink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	expect.OK(t, os.Symlink(dir, link))
	expect.OK(t, writeFile(filepath.Join(link, "report"), bytes.NewBufferString("new"), false))
	expect.Equal(t, "new", string(expect.Value(os.ReadFile(filepath.Join(dir, "report")))(t)))
}

// While a report is written with force, another process replaces it by a link again and again.
func TestALinkThatAppearsIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	other, report := filepath.Join(dir, "other"), filepath.Join(dir, "report")
	expect.OK(t, os.WriteFile(other, []byte("kept"), 0o644))
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				_ = os.Symlink(other, report)
				_ = os.Remove(report)
			}
		}
	}()
	for range 2000 {
		_ = writeFile(report, bytes.NewBufferString("new"), true)
	}
	close(end)
	<-ended
	expect.Equalf(t, "kept", string(expect.Value(os.ReadFile(other))(t)), "another file")
}
