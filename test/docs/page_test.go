package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
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
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d how-to pages: %v", len(files), err)
	}
	for _, file := range append([]string{root + "README.md", root + "docs/tutorial.md"}, files...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
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
