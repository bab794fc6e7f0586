package redact

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// messages are the packages whose texts are seen in conditions, events, logs, status, plan and why.
var messages = []string{
	"action", "apply", "backoff", "cli/pvc", "cli/render", "condition", "controller", "gang", "identity", "lws", "lwscache",
	"operator", "pvc", "pvccache", "report",
}

// Every word of our own messages is in the list: a bundle without them would say little.
func TestWordsOfOurMessagesStay(t *testing.T) {
	missing, found := map[string]bool{}, 0
	for _, dir := range messages {
		err := filepath.WalkDir(filepath.Join("..", "..", filepath.FromSlash(dir)), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, text := range literals(t, path) {
				for _, word := range word.FindAllString(text, -1) {
					found++
					if len(word) > 2 && strings.Trim(word, "0123456789") == word && !isVocabulary(word) {
						missing[word] = true
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 1000 {
		t.Fatalf("only %d words were found", found)
	}
	if len(missing) > 0 {
		words := make([]string, 0, len(missing))
		for word := range missing {
			words = append(words, word)
		}
		slices.Sort(words)
		t.Errorf("add to words.txt: %s", strings.Join(words, " "))
	}
}

// literals returns the strings of a file, without its imports and tags.
func literals(t *testing.T, path string) (texts []string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			node.Tag = nil
		case *ast.BasicLit:
			if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
				texts = append(texts, text)
			}
		}
		return true
	})
	return texts
}
