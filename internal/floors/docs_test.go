package floors

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// gather calls read with every file below a directory of the tree whose name ends so.
func gather(t *testing.T, dir, suffix string, read func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..":
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		read(path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What documents say is tested is tested by a test of that name.
func TestEveryTestThatDocumentsNameIsThere(t *testing.T) {
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)[A-Z]\w*)\(`)
	for _, dir := range []string{"api", "cmd", "config", "internal", "local", "scheduling", "test"} {
		gather(t, dir, "_test.go", func(_, text string) {
			for _, match := range declared.FindAllStringSubmatch(text, -1) {
				there[match[1]] = true
			}
		})
	}
	named := regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z]\\w*)(?:/\\w+)?`")
	found := 0
	gather(t, "docs", ".md", func(path, text string) {
		for _, match := range named.FindAllStringSubmatch(text, -1) {
			found++
			if !there[match[1]] {
				t.Errorf("%s names %s, and there is no such test", path, match[1])
			}
		}
	})
	if found < 40 {
		t.Errorf("documents name %d tests: they are not where this test looks", found)
	}
}

// Every failure that the document tells of names the test that shows it.
func TestEveryFailureModeNamesItsTest(t *testing.T) {
	rows := 0
	gather(t, "docs", "failure-modes.md", func(_, text string) {
		tested := false
		for line := range strings.Lines(text) {
			cells := strings.Split(strings.TrimSpace(line), "|")
			switch {
			case len(cells) < 3: // no table
				tested = false
			case strings.TrimSpace(cells[len(cells)-2]) == "test":
				tested = true
			case tested && !strings.HasPrefix(cells[1], " ---"):
				if rows++; !strings.Contains(cells[len(cells)-2], "`Test") {
					t.Errorf("no test is named for: %s", cells[1])
				}
			}
		}
	})
	if rows < 20 {
		t.Errorf("found %d rows: they are not where this test looks", rows)
	}
}
