package redact

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockstep.dev/lockstep/api/config/v1alpha1"
)

// messages are the packages whose texts are seen in conditions, events, logs, status, plan and why.
var messages = []string{
	"action", "apply", "backoff", "cli/pvc", "cli/render", "condition", "controller", "gang", "identity", "lws", "lwscache",
	"operator", "pvc", "pvccache", "report",
}

// Every word of our own messages and of the names of fields is in the list: a bundle without them would say little.
func TestWordsOfMessagesAndFieldsStay(t *testing.T) {
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
	fields, seen := map[string]bool{}, map[reflect.Type]bool{}
	fieldNames(reflect.TypeFor[v1alpha1.Configuration](), seen, fields)
	for _, kind := range kinds() {
		fieldNames(reflect.TypeOf(kind), seen, fields)
	}
	for field := range fields {
		if strings.ContainsAny(field, "0123456789") && !isVocabulary(field) {
			missing[field] = true
		}
		for _, part := range part.FindAllString(field, -1) {
			if strings.Trim(part, "0123456789") != "" && !isVocabulary(part) {
				missing[strings.ToLower(part)] = true
			}
		}
	}
	words := slices.Sorted(maps.Keys(missing))
	switch {
	case len(missing) == 0:
	case *update:
		addWords(t, words)
	default:
		t.Errorf("words.txt lacks %s; run this test with -update", strings.Join(words, " "))
	}
}

// fieldNames adds the names of all fields of a type.
func fieldNames(of reflect.Type, seen map[reflect.Type]bool, names map[string]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		fieldNames(of.Elem(), seen, names)
	case reflect.Struct:
		if seen[of] {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			names[jsonName(of.Field(i))] = true
			fieldNames(of.Field(i).Type, seen, names)
		}
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

var update = flag.Bool("update", false, "add the words of our messages to words.txt")

func addWords(t *testing.T, more []string) {
	all := append(strings.Fields(wordList), more...)
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	var text, line strings.Builder
	for _, word := range slices.CompactFunc(all, strings.EqualFold) {
		if line.Len() > 0 && line.Len()+1+len(word) > 120 {
			text.WriteString(line.String() + "\n")
			line.Reset()
		}
		if line.Len() > 0 {
			line.WriteString(" ")
		}
		line.WriteString(word)
	}
	if err := os.WriteFile("words.txt", []byte(text.String()+line.String()+"\n"), 0o644); err != nil {
		t.Fatal(err)
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
