package floors

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
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
	if checked < 40 {
		t.Errorf("only %d names were checked", checked)
	}
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
