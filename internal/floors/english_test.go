package floors

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

// wordsAtMost is the length of a sentence.
const wordsAtMost = 25

// refused are phrases that a maintainer of Kubernetes would not say, each with what to write instead.
var refused = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\b(is|are) put\b`):               "the verb: the operator writes, the installer creates",
	regexp.MustCompile(`(?i)\b(goes|comes)\b`):               "the verb: ends, is deleted, is removed, continues, starts",
	regexp.MustCompile(`(?i)\bthat of\b`):                    "the possessive, or the noun again",
	regexp.MustCompile(`(?i)\bsuch an?\b`):                   "the noun with its article",
	regexp.MustCompile(`(?i)\b(with|have|has) (a key|keys)`): "Hash group, Hash leader",
	regexp.MustCompile(`(?i)\b(whoever|nobody|somebody)\b`):  "the noun: a client, a user, a controller",
	regexp.MustCompile(`(?i)\bno more\b`):                    "no longer",
}

// generated pages take their sentences from Go types.
var generated = []string{"docs/api.md"}

var (
	code     = regexp.MustCompile("`[^`]*`")
	address  = regexp.MustCompile(`\]\([^)]*\)`)
	sentence = regexp.MustCompile(`[.!?:;][*_]*\s+`)
	word     = regexp.MustCompile(`\w`)
	listItem = regexp.MustCompile(`^\s*([-*]|\d+\.)\s`)
)

// pages returns the text of each page, without fenced code, by its path.
func pages(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, entry os.DirEntry, err error) error {
		name, _ := filepath.Rel(root, p)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || name == "dist" || entry.Name() == "testdata" || strings.HasPrefix(name, ".") && name != "."):
			return filepath.SkipDir
		case entry.IsDir(), !strings.HasSuffix(name, ".md"):
			return nil
		}
		text, err := os.ReadFile(p)
		isCode := false
		for line := range strings.Lines(string(text)) {
			isFence := strings.HasPrefix(strings.TrimSpace(line), "```")
			if isCode = isCode != isFence; isCode || isFence || strings.HasPrefix(line, "    ") {
				line = ""
			}
			found[name] = append(found[name], address.ReplaceAllString(code.ReplaceAllString(line, "X"), "]"))
		}
		return err
	})
	expect.OK(t, err)
	expect.Must(t, len(found) >= 50, "only %d pages were read", len(found))
	return found
}

// sentencesOf returns the sentences of the paragraphs and list items of a page. Tables have cells.
func sentencesOf(lines []string) (all []string) {
	paragraph := ""
	end := func() {
		all = append(all, sentence.Split(paragraph, -1)...)
		paragraph = ""
	}
	for _, line := range lines {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "|") || listItem.MatchString(line) {
			end()
		}
		if !strings.HasPrefix(line, "|") {
			paragraph += " " + strings.TrimSpace(line)
		}
	}
	end()
	return all
}

func TestSentencesOfPagesAreShort(t *testing.T) {
	for name, lines := range pages(t) {
		for _, s := range sentencesOf(lines) {
			n := 0
			for _, w := range strings.Fields(s) {
				if word.MatchString(w) {
					n++
				}
			}
			expect.That(t, n <= wordsAtMost, "%s: %d words: %s", name, n, s)
		}
	}
}

func TestPagesAreInPlainEnglish(t *testing.T) {
	for name, lines := range pages(t) {
		for i, line := range lines {
			for phrase, instead := range refused {
				if found := phrase.FindString(line); found != "" && !slices.Contains(generated, filepath.ToSlash(name)) {
					t.Errorf("%s:%d: %q: write %s", name, i+1, found, instead)
				}
			}
		}
	}
}
