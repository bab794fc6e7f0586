package floors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// againstAtMost is how many references below internal/lws may point to a file that the package comment lists later. A
// name counts once for each pair of files.
const againstAtMost = 25

// listOfFiles is how a package comment lists the files of its package.
var listOfFiles = regexp.MustCompile(`(?s)Files, each of which builds on those before it:\s(.*?)\.\n`)

func TestReferencesFollowTheOrderOfFiles(t *testing.T) {
	command := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./internal/lws/...")
	command.Dir = filepath.Join("..", "..")
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports, ours := map[string]string{}, map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if name, is := within(p.ImportPath); is && strings.HasPrefix(name+"/", "internal/lws/") {
			for _, file := range p.GoFiles {
				ours[p.ImportPath] = append(ours[p.ImportPath], filepath.Join(p.Dir, file))
			}
		}
	}
	fset := token.NewFileSet()
	binary := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var against []string
	for path, files := range ours {
		against = append(against, againstTheOrder(t, fset, binary, path, files)...)
	}
	if len(against) > againstAtMost {
		t.Errorf("%d references point to files that are listed later, and %d may:\n%s", len(against), againstAtMost, strings.Join(against, "\n"))
	}
}

// againstTheOrder returns the references of a package that point to a file listed later, and requires that a package of
// several files lists each.
func againstTheOrder(t *testing.T, fset *token.FileSet, binary types.Importer, path string, names []string) (against []string) {
	t.Helper()
	var files []*ast.File
	listed := map[string]int{}
	for _, name := range names {
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		if found := listOfFiles.FindStringSubmatch(file.Doc.Text()); found != nil {
			for i, name := range strings.FieldsFunc(found[1], func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
				listed[name] = i
			}
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checked, err := (&types.Config{Importer: binary}).Check(path, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	base := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	for _, file := range files {
		_, isListed := listed[base(file.Pos())]
		if len(files) > 2 && !isListed && base(file.Pos()) != "doc.go" {
			t.Errorf("the comment of package %s does not list %s", path, base(file.Pos()))
		}
	}
	for id, object := range info.Uses {
		_, isFunction := object.(*types.Func)
		if object.Pkg() != checked || !isFunction && object.Parent() != checked.Scope() {
			continue
		}
		from, to := base(id.Pos()), base(object.Pos())
		if text := fmt.Sprintf("%s: %s → %s %s", path, from, to, object.Name()); listed[from] < listed[to] && !slices.Contains(against, text) {
			against = append(against, text)
		}
	}
	return against
}
