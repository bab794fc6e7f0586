package floors

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)

// A document that links to a file or a heading that is gone sends its reader nowhere.
func TestLinksInDocumentsResolve(t *testing.T) {
	root, links := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			links++
			if broken := resolve(path, match[1], match[2]); broken != "" {
				t.Errorf("%s: %s", path, broken)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 20 {
		t.Errorf("found %d links: the documents are not where this test reads", links)
	}
}

// resolve reports what is wrong with a link in the document at path, or returns "".
func resolve(path, target, heading string) string {
	if strings.Contains(target, "://") {
		return ""
	}
	file := path
	if target != "" {
		file = filepath.Join(filepath.Dir(path), target)
	}
	info, err := os.Stat(file)
	if err != nil {
		return "link to " + target + ", which does not exist"
	}
	if heading == "" || info.IsDir() || filepath.Ext(file) != ".md" {
		return ""
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if title := strings.TrimLeft(line, "#"); title != line && anchor(title) == heading {
			return ""
		}
	}
	return "link to " + target + heading + ", and there is no such heading"
}

var dropped = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchor is the fragment under which a rendered document offers a heading.
func anchor(title string) string {
	plain := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
	return "#" + strings.ReplaceAll(plain, " ", "-")
}
