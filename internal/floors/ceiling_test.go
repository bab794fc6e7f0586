package floors

import (
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Ceilings only fall: no commit raises a number of this file. What does not fit is made simpler first.
const (
	// wholeAtMost is of the product: all Go but tests, what only tests use, and generated files.
	wholeAtMost = 40_434
	// packageAtMost is of a package that largePackages does not name.
	packageAtMost = 1_500
	// methodsAtMost is of a type that largeTypes does not name.
	methodsAtMost = 40
	limitsAtMost  = 50
	// keyQuestionsAtMost is of lines that ask whether groups have keys.
	keyQuestionsAtMost = 25
)

// largePackages are packages above the ceiling.
var largePackages = map[string]int{
	"internal/lws":           1_391,
	"internal/lwscache":      2_255,
	"internal/pvc":           2_252,
	"internal/install":       2_079,
	"local/internal/plane":   1_777,
	"internal/cli/render":    1_830,
	"internal/lws/admission": 1_486,
	"internal/cli":           1_422,
	"internal/operator":      1_554,
}

// largeTypes are types above the ceiling.
var largeTypes = map[string]int{}

// keyQuestion is how code asks for the identity of a set or a group. HashKey asks where its value is compared.
var keyQuestion = regexp.MustCompile(`\b(HasKey|HasHashIdentity|IsHashLeader|LeaderOf)\b|\bHashKey\(\w+\) [!=]= ""`)

// product returns the text of each Go file of the product, by its path in the repository.
func product(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, entry os.DirEntry, err error) error {
		name, _ := filepath.Rel(root, p)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "test" || name == "bin" || name == "dist" || strings.HasPrefix(name, ".") && name != "."):
			return filepath.SkipDir
		case entry.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"), strings.HasPrefix(entry.Name(), "zz_"):
			return nil
		}
		text, err := os.ReadFile(p)
		texts[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestSizesStayBelowTheirCeilings(t *testing.T) {
	whole, packages := 0, map[string]int{}
	for name, text := range product(t) {
		n := strings.Count(text, "\n")
		whole += n
		packages[path.Dir(name)] += n
	}
	below(t, "the product", "lines", whole, wholeAtMost)
	for name, n := range packages {
		most, isLarge := largePackages[name]
		if !isLarge {
			most = packageAtMost
		}
		below(t, name, "lines", n, most)
	}
	stillThere(t, largePackages, packages)
}

func TestTypesStayBelowTheirCeilings(t *testing.T) {
	methods := map[string]int{}
	for name, text := range product(t) {
		nodesIn(t, name, text, func(_ *ast.File, node ast.Node) string {
			if f, is := node.(*ast.FuncDecl); is && f.Recv != nil {
				methods[path.Dir(name)+" "+receiver(f.Recv.List[0].Type)]++
			}
			return ""
		})
	}
	for name, n := range methods {
		most, isLarge := largeTypes[name]
		if !isLarge {
			most = methodsAtMost
		}
		below(t, name, "methods", n, most)
	}
	stillThere(t, largeTypes, methods)
}

// receiver returns the name of the type of a receiver.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

func TestLimitsAreFew(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "limits.md"))
	if err != nil {
		t.Fatal(err)
	}
	below(t, "docs/limits.md", "bullets", strings.Count("\n"+string(text), "\n- "), limitsAtMost)
}

func TestFewLinesAskForTheIdentityOfASet(t *testing.T) {
	n := 0
	for _, text := range product(t) {
		for line := range strings.Lines(text) {
			if keyQuestion.MatchString(line) && !strings.HasPrefix(strings.TrimSpace(line), "//") {
				n++
			}
		}
	}
	below(t, "the product", "lines that ask whether groups have keys", n, keyQuestionsAtMost)
}

// below reports what is above its ceiling.
func below(t *testing.T, name, unit string, n, most int) {
	t.Helper()
	if n > most {
		t.Errorf("%s has %d %s, and may have %d: delete or simplify first", name, n, unit, most)
	}
}

// stillThere reports entries of a table that name nothing.
func stillThere(t *testing.T, table, found map[string]int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if found[name] == 0 {
			t.Errorf("%s is in the table and not in the tree: take it out", name)
		}
	}
}
