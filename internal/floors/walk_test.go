package floors

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

// walks are the walks of internal/lws, one event and one reconcile each, and how many functions of more than
// six lines each may touch. The numbers only fall. Package report is not counted.
var walks = map[string]int{
	"failed worker":    64,
	"rolling update":   118,
	"hash replacement": 107,
	"survey":           130,
}

// decidesAtMost is how often the walk of a failed worker may decide about the group: by the cache, and by a live read with the revision.
const decidesAtMost = 2

// least is the number of lines above which a function counts.
const least = 6

// function is a function of the product.
type function struct {
	file, name string
	from, to   int
}

func TestWalksAreShort(t *testing.T) {
	program := filepath.Join(t.TempDir(), "walks")
	build := exec.Command("go", "test", "-c", "-covermode=count", "-coverpkg=./internal/...", "-o", program, "./internal/lws")
	build.Dir = filepath.Join("..", "..")
	out, err := build.CombinedOutput()
	expect.Must(t, err == nil, "%v\n%s", err, out)
	for name, most := range walks {
		touched := touchedBy(t, walked(t, program, name))
		t.Logf("%s: %d functions", name, len(touched))
		if len(touched) > most {
			t.Errorf("the walk %q touches %d functions of more than %d lines, and may touch %d:\n%s",
				name, len(touched), least, most, strings.Join(slices.Sorted(maps.Keys(touched)), "\n"))
		}
		if decided := touched["internal/lws/group/decide.go Decide"]; name == "failed worker" && (decided == 0 || decided > decidesAtMost) {
			t.Errorf("the walk %q decides about the group %d times", name, decided)
		}
		derived := touched["internal/lws/table/derive.go Of"]
		expect.That(t, name != "survey" || derived == 1, "the walk %q derives the values of the set %d times", name, derived)
	}
}

// touchedBy returns the functions of blocks that count, and how often each was called.
func touchedBy(t *testing.T, blocks map[block]int) map[string]int {
	t.Helper()
	known, touched := map[string][]function{}, map[string]int{}
	for _, b := range slices.SortedFunc(maps.Keys(blocks), func(a, b block) int { return a.line - b.line }) {
		if strings.HasPrefix(b.file, "internal/report/") {
			continue
		}
		if known[b.file] == nil {
			known[b.file] = functionsOf(t, b.file)
		}
		for _, f := range known[b.file] {
			if key := f.file + " " + f.name; f.from <= b.line && b.line <= f.to && touched[key] == 0 {
				touched[key] = blocks[b] // its first block
			}
		}
	}
	return touched
}

// block is a statement that a run covers, by its first line.
type block struct {
	file string
	line int
}

// walked returns the blocks that the reconcile of a walk runs, and how often: a run with it, less one without it.
func walked(t *testing.T, program, name string) map[block]int {
	t.Helper()
	with, without := covered(t, program, name, ""), covered(t, program, name, "true")
	for b, count := range with {
		if with[b] = count - without[b]; with[b] <= 0 {
			delete(with, b)
		}
	}
	expect.Must(t, len(with) > 0, "the walk %q covers nothing", name)
	return with
}

func covered(t *testing.T, program, name, unended string) map[block]int {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	run := exec.Command(program, "-test.coverprofile="+profile, "-test.run=^TestWalk$/^"+strings.ReplaceAll(name, " ", "_")+"$")
	run.Env = append(os.Environ(), "LOCKSTEP_WALK_UNENDED="+unended)
	out, err := run.CombinedOutput()
	expect.Must(t, err == nil, "%v\n%s", err, out)
	file := expect.Value(os.Open(profile))(t)
	defer file.Close()
	counts := map[block]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		path, rest, _ := strings.Cut(lines.Text(), ":")
		var line, column, endLine, endColumn, statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &line, &column, &endLine, &endColumn, &statements, &count); err != nil {
			continue // the first line says the mode
		}
		if path, ours := within(path); ours && count > 0 {
			counts[block{path, line}] += count
		}
	}
	return counts
}

// functionsOf returns the functions of a file that count.
func functionsOf(t *testing.T, name string) (found []function) {
	t.Helper()
	set := token.NewFileSet()
	file := expect.Value(parser.ParseFile(set, filepath.Join("..", "..", name), nil, parser.SkipObjectResolution))(t)
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is {
			continue
		}
		from, to := set.Position(f.Pos()).Line, set.Position(f.End()).Line
		if to-from+1 > least {
			found = append(found, function{name, f.Name.Name, from, to})
		}
	}
	return found
}

var (
	// fileBeside is a file of the product that a line of a walk names.
	fileBeside = regexp.MustCompile(`[\w/…]+\.go`)
	// functionName is a name in a walk, with its type or its package if it has one.
	functionName = regexp.MustCompile(`^(?:\w+\.)?([A-Za-z]\w*)$`)
	branches     = regexp.MustCompile(`[│├└▼]`)
)

// TestWalksOfPagesNameFunctions: each name of a walk in docs/architecture.md is a function of the product, and the first of
// a line is in the file beside it.
func TestWalksOfPagesNameFunctions(t *testing.T) {
	page := expect.Value(os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md")))(t)
	declared := map[string]map[string]bool{} // by name, the files
	for name, text := range product(t) {
		nodesIn(t, name, text, func(_ *ast.File, node ast.Node) string {
			if f, is := node.(*ast.FuncDecl); is {
				if declared[f.Name.Name] == nil {
					declared[f.Name.Name] = map[string]bool{}
				}
				declared[f.Name.Name][name] = true
			}
			return ""
		})
	}
	checked, walk, dir := 0, false, ""
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "## ") {
			walk = strings.HasPrefix(line, "## Walk")
		}
		if !walk || !strings.HasPrefix(line, " ") && !strings.Contains(line, "─") && !strings.Contains(line, ".go") {
			continue
		}
		file := fileBeside.FindString(line)
		if strings.HasPrefix(file, "…/") {
			file = path.Join(dir, strings.TrimPrefix(file, "…/"))
		} else if file != "" {
			dir = path.Dir(file)
		}
		for i, name := range namesOfWalk(line) {
			checked++
			switch files := declared[name]; {
			case len(files) == 0:
				t.Errorf("%s: no function %s", strings.TrimSpace(line), name)
			case i == 0 && file != "" && !files[file]:
				t.Errorf("%s: %s is not in %s", strings.TrimSpace(line), name, file)
			}
		}
	}
	expect.That(t, checked >= 40, "only %d names were checked", checked)
}

// namesOfWalk returns the names at the beginning of a line: what follows two spaces, or an arrow, is for people.
func namesOfWalk(line string) (names []string) {
	line, _, _ = strings.Cut(strings.TrimSpace(branches.ReplaceAllString(line, " ")), "  ")
	line, _, _ = strings.Cut(line, "►")
	for part := range strings.SplitSeq(line, "─") {
		if found := functionName.FindStringSubmatch(strings.TrimSpace(part)); found != nil {
			names = append(names, found[1])
		}
	}
	return names
}
