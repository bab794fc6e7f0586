package docs

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const root = "../../"

// programs begin a command. A block that begins with another word is not one of commands.
var programs = []string{
	"bin/lockstep", "bin/lockstep-local", "cosign", "diff", "export", "go", "helm", "kill", "kubectl", "lockstep", "make",
	"openssl", "sed", "sha256sum", "until", "velero",
}

// A page is one file of the documentation, and what its blocks hold.
type page struct {
	path   string
	blocks []block
}

// A block is an indented or fenced block, or a table of commands.
type block struct {
	line     int
	text     string
	commands []string // none if it shows something else
}

// name is the file name of the page, without its ending.
func (p page) name() string { return strings.TrimSuffix(filepath.Base(p.path), ".md") }

func pages(t *testing.T) (all []page) {
	t.Helper()
	files, err := filepath.Glob(root + "docs/how-to/*.md")
	expect.Must(t, err == nil && len(files) >= 10, "found %d how-to pages: %v", len(files), err)
	for _, file := range append([]string{root + "README.md", root + "docs/tutorial.md"}, files...) {
		text := expect.Value(os.ReadFile(file))(t)
		all = append(all, page{strings.TrimPrefix(file, root), parse(string(text))})
	}
	return all
}

// parse returns the blocks of a page.
func parse(text string) (blocks []block) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		begin := i
		var within []string
		switch {
		case strings.HasPrefix(lines[i], "```"):
			for i++; i < len(lines) && !strings.HasPrefix(lines[i], "```"); i++ {
				within = append(within, lines[i])
			}
		case strings.HasPrefix(lines[i], "    ") && (i == 0 || lines[i-1] == ""):
			for ; i < len(lines) && (strings.HasPrefix(lines[i], "    ") || lines[i] == ""); i++ {
				within = append(within, lines[i])
			}
			i--
		case strings.HasPrefix(lines[i], "| ") && strings.HasSuffix(lines[i], "| command |"):
			for i++; i < len(lines) && strings.HasPrefix(lines[i], "|"); i++ {
				within = append(within, inTable(lines[i])...)
			}
			i--
		default:
			continue
		}
		text := dedent(within)
		blocks = append(blocks, block{begin + 1, text, commands(text)})
	}
	return blocks
}

var span = regexp.MustCompile("`([^`]+)`")

// inTable returns the commands in the last cell of a row.
func inTable(row string) (all []string) {
	cells := strings.Split(strings.TrimSuffix(row, " |"), " | ")
	for _, found := range span.FindAllStringSubmatch(cells[len(cells)-1], -1) {
		if isCommand(found[1]) {
			all = append(all, found[1])
		}
	}
	return all
}

func dedent(lines []string) string {
	indent := 1000
	for _, line := range lines {
		if trimmed := strings.TrimLeft(line, " "); trimmed != "" {
			indent = min(indent, len(line)-len(trimmed))
		}
	}
	var out []string
	for _, line := range lines {
		out = append(out, line[min(indent, len(line)):])
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

func isCommand(line string) bool {
	word, _, _ := strings.Cut(line, " ")
	return slices.Contains(programs, word)
}

// commands returns the commands of a block: every line, or those after a prompt. Lines that a backslash continues are
// one.
func commands(text string) (all []string) {
	prompt := strings.HasPrefix(text, "$ ")
	if !prompt && !isCommand(text) {
		return nil
	}
	for _, line := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if prompt && !strings.HasPrefix(line, "$ ") || strings.TrimSpace(line) == "" {
			continue
		}
		line, _, _ = strings.Cut(line, " #")
		all = append(all, strings.Join(strings.Fields(strings.TrimPrefix(line, "$ ")), " "))
	}
	return all
}

// strange says what is wrong with a block: it holds neither commands alone, nor YAML.
func (b block) strange() string {
	for _, command := range b.commands {
		if !isCommand(command) {
			return fmt.Sprintf("%q begins with no program that the test knows", command)
		}
	}
	var fields map[string]any
	var items []map[string]any
	if len(b.commands) == 0 && yaml.Unmarshal([]byte(b.text), &fields) != nil && yaml.Unmarshal([]byte(b.text), &items) != nil {
		return "it is neither commands nor YAML: name its program, or call it output in the fixture"
	}
	return ""
}

// A fixture is bash, with these orders in comments:
//
//	#: NAME stands for llama                        a placeholder
//	#: in_pod runs helm install                     a function that gets the commands that begin so as its arguments
//	#: leaves out make demo because CI runs it      commands that begin so
//	#: GROUP READY is output                        a block that begins so
//
// A function "begin" runs before the first block. An order that matches nothing is an error.
type fixture struct {
	file   string
	orders []*order
}

type order struct {
	verb, subject, object string
	used                  bool
}

var verbs = map[string]*regexp.Regexp{
	"stands for": regexp.MustCompile(`^(.+) stands for (.+)$`),
	"runs":       regexp.MustCompile(`^(\w+) runs (.+)$`),
	"leaves out": regexp.MustCompile(`^leaves out (.+) because (.+)$`),
	"is output":  regexp.MustCompile(`^(.+) is (output)$`),
}

func readFixture(file string) (*fixture, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	f := &fixture{file: file}
	for line := range strings.Lines(string(text)) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "#: ")
		if !ok {
			continue
		}
		known := len(f.orders)
		for verb, form := range verbs {
			if match := form.FindStringSubmatch(text); match != nil {
				f.orders = append(f.orders, &order{verb: verb, subject: match[1], object: match[2]})
			}
		}
		if len(f.orders) != known+1 {
			return nil, fmt.Errorf("%s: %q is not one order", file, text)
		}
	}
	return f, nil
}

// begins reports whether a text begins with the words of a beginning, with any space between them.
func begins(text, beginning string) bool {
	words, first := strings.Fields(text), strings.Fields(beginning)
	return len(first) <= len(words) && slices.Equal(first, words[:len(first)])
}

// find returns the order of a verb whose words, in field, are the longest beginning of a text.
func (f *fixture) find(verb, text string, field func(*order) string) (found *order) {
	for _, o := range f.orders {
		if o.verb == verb && begins(text, field(o)) && (found == nil || len(field(o)) > len(field(found))) {
			found = o
		}
	}
	if found != nil {
		found.used = true
	}
	return found
}

func subject(o *order) string { return o.subject }
func object(o *order) string  { return o.object }

// A step is what bash runs in place of a command of a page.
type step struct {
	command, script string
	function        string // runs the command
	reason          string // why it is left out
}

func (f *fixture) step(command string) step {
	s := step{command: command, script: f.fill(command)}
	if o := f.find("leaves out", command, subject); o != nil {
		s.reason = o.object
	} else if o := f.find("runs", command, object); o != nil {
		s.function, s.script = o.subject, o.subject+" "+s.script
	}
	return s
}

// fill puts in what stands for the placeholders, the longest first. NAME does not stand in NAMESPACE.
func (f *fixture) fill(command string) string {
	stand, forms := map[string]*order{}, []string{}
	for _, o := range f.orders {
		if o.verb == "stands for" {
			stand[o.subject], forms = o, append(forms, o.subject)
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	for i, form := range forms {
		forms[i] = edge.ReplaceAllString(regexp.QuoteMeta(form), `\b$0`)
		if last := form[len(form)-1:]; edge.MatchString(last) {
			forms[i] += `\b`
		}
	}
	if len(forms) == 0 {
		return command
	}
	return regexp.MustCompile(strings.Join(forms, "|")).ReplaceAllStringFunc(command, func(found string) string {
		stand[found].used = true
		return stand[found].object
	})
}

// edge is a first character at which a word begins.
var edge = regexp.MustCompile(`^\w`)

// A part is a block of commands, as bash runs it.
type part struct {
	line  int
	steps []step
}

// yamls returns the blocks of a page that show YAML: the fixture finds them in 1.yaml, 2.yaml and so on, beside the
// copy of the repository.
func yamls(p page) (all []string) {
	for _, b := range p.blocks {
		if len(b.commands) == 0 {
			all = append(all, b.text)
		}
	}
	return all
}

// plan returns what to run of a page, and what is wrong with the page or its fixture.
func plan(p page, f *fixture) (parts []part, wrong error) {
	for _, b := range p.blocks {
		if f.find("is output", b.text, subject) != nil {
			continue
		}
		if strange := b.strange(); strange != "" {
			wrong = errors.Join(wrong, fmt.Errorf("%s:%d: %s", p.path, b.line, strange))
		}
		if len(b.commands) == 0 {
			continue
		}
		now := part{line: b.line}
		for _, command := range b.commands {
			s := f.step(command)
			if s.reason == "" && strings.Contains(s.script, "…") {
				wrong = errors.Join(wrong, fmt.Errorf("%s:%d: nothing stands for … in %q", p.path, b.line, command))
			}
			now.steps = append(now.steps, s)
		}
		parts = append(parts, now)
	}
	for _, o := range f.orders {
		if !o.used {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %q %s %q, which matches nothing in %s", f.file, o.subject, o.verb, o.object, p.path))
		}
	}
	return parts, wrong
}

// isRun reports whether a command of a part runs.
func (p part) isRun() bool {
	return slices.ContainsFunc(p.steps, func(s step) bool { return s.reason == "" })
}

// Every block can be run, or its fixture says why not; every order of a fixture matches its page.
func TestFixturesMatchPages(t *testing.T) {
	known := []string{"session"}
	for _, p := range pages(t) {
		known = append(known, p.name())
		planned(t, p)
	}
	files := expect.Value(filepath.Glob("testdata/*.sh"))(t)
	for _, file := range files {
		expect.That(t, slices.Contains(known, strings.TrimSuffix(filepath.Base(file), ".sh")),
			"%s is the fixture of no page", file)
	}
}

func planned(t *testing.T, p page) []part {
	t.Helper()
	f, err := readFixture("testdata/" + p.name() + ".sh")
	if err != nil {
		t.Error(err)
		return nil
	}
	parts, err := plan(p, f)
	expect.That(t, err == nil, "%v", err)
	return parts
}

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
	above := expect.Value(filepath.Abs(root))(t)
	s := &session{T: t, page: p.path, dir: filepath.Join(dir, "lockstep"), log: filepath.Join(dir, "output")}
	expect.OK(t, os.RemoveAll(s.dir))
	expect.OK(t, os.MkdirAll(filepath.Join(dir, "home"), 0o755))
	// What is not committed yet is tried as well.
	output(t, "bash", "-ec", `git clone --quiet --shared "$0" "$1"; git -C "$0" diff --binary HEAD | git -C "$1" apply --allow-empty
		cp testdata/* "$1/.."`, above, s.dir)
	for i, text := range yamls(p) {
		expect.OK(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i+1)+".yaml"), []byte(text+"\n"), 0o644))
	}
	ports := expect.Value(drill.FreePorts(3))(t)
	s.env = append(os.Environ(), "HOME="+filepath.Join(dir, "home"), "KUBECONFIG=", "MAKEFLAGS=", "MAKELEVEL=",
		"PATH="+programs+":"+os.Getenv("PATH"), "BUILT="+filepath.Join(above, "bin"), "PAGE="+p.name(), "EGRESS="+s.egress(ports[0]),
		"WEBHOOKS="+strconv.Itoa(ports[0]), "PROBES="+strconv.Itoa(ports[1]), "REGISTRY="+strconv.Itoa(ports[2]))
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		s.env = append(s.env, name+"="+output(t, "go", "env", name))
	}
	return s
}

// egress is the socket of a proxy: through it, the API server reaches the operator at a port of this machine where it
// asks for a Service. Pods are simulated, and behind a Service of pods nothing answers. The kubelets of nodes are kwok.
func (s *session) egress(port int) string {
	dir, err := os.MkdirTemp("", "docs") // the path of a socket has at most 107 bytes
	expect.OK(s.T, err)
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "egress")
	listener, err := net.Listen("unix", socket)
	expect.OK(s.T, err)
	s.Cleanup(func() { _ = listener.Close() })
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			if host, _, _ := net.SplitHostPort(r.Host); net.ParseIP(host).IsLoopback() {
				to = r.Host
			}
			drill.Tunnel(w, r, to)
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
	expect.OK(s.T, os.WriteFile(file, []byte(script(parts)), 0o644))
	log, err := os.Create(s.log)
	expect.OK(s.T, err)
	defer log.Close()
	told, tell, err := os.Pipe()
	expect.OK(s.T, err)
	lives, life, err := os.Pipe()
	expect.OK(s.T, err)
	bash := exec.Command("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", file)
	bash.Dir, bash.Env, bash.Stdout, bash.Stderr = s.dir, s.env, log, log
	bash.ExtraFiles = []*os.File{tell, lives}
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	expect.OK(s.T, bash.Start())
	_, _ = tell.Close(), lives.Close()

	overdue := time.AfterFunc(limit, func() { _ = bash.Process.Kill() })
	fault := bash.Wait()
	overdue.Stop()
	_ = life.Close()
	expect.OK(s.T, told.SetReadDeadline(time.Now().Add(drill.Patience)))
	blocks, err := io.ReadAll(told)
	expect.That(s, err == nil, "%s: processes do not end: %v", s.page, err)
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
	expect.OKf(t, err, "%s %q", program, args)
	return strings.TrimSpace(string(out))
}
