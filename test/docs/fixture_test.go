package docs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
	files, err := filepath.Glob("testdata/*.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".sh"); !slices.Contains(known, name) {
			t.Errorf("%s is the fixture of no page", file)
		}
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
	if err != nil {
		t.Error(err)
	}
	return parts
}
