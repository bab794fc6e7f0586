package floors

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "lockstep.dev/lockstep"

// floor is how high a package stands: it may import what stands lower, and what
// stands beside it only where beside says so.
type floor int

const (
	apart floor = iota - 1 // imports nothing of ours but what is apart, and is imported freely
	f0                     // what users write
	f1                     // names, writes, conditions
	f2                     // decisions
	f3                     // the cluster: reading, writing, telling
	f4                     // watches and webhooks
	f5                     // what people use
	f6                     // programs
	tests                  // imported by tests alone
)

// floors is where every package stands, by its path within the module. What
// ends in "/..." stands for all below it.
var floors = map[string]floor{
	"api/config/v1alpha1":    f0,
	"api/leaderworkerset/v1": f0,

	"internal/identity":  f1,
	"internal/action":    f1,
	"internal/backoff":   f1,
	"internal/condition": f1,
	"internal/quantity":  f1,
	"internal/gang":      f1,

	"internal/lws":           f2,
	"internal/lws/admission": f2,
	"internal/lws/restart":   f2,
	"internal/lws/volumes":   f2,
	"internal/lws/workload":  f2,

	"internal/pvc":           f2,
	"internal/pvc/workloads": f2,

	"internal/lwscache": f3,
	"internal/pvccache": f3,
	"internal/apply":    f3,
	"internal/report":   f3,

	"internal/controller/lws":          f4,
	"internal/controller/pvcfinalizer": f4,
	"internal/controller/pvchold":      f4,
	"internal/controller/podgate":      f4,
	"internal/webhook":                 f4,
	"internal/webhook/certs":           f4,
	"scheduling":                       f4, // in another program, with that one's client

	"internal/cli/...":     f5,
	"internal/install/...": f5,
	"internal/operator":    f5,
	"cmd/...":              f6,
	"hack/...":             f6,

	"internal/kinds":   apart, // which kinds are served
	"internal/lease":   apart, // who runs the controllers
	"internal/connect": apart, // how a program reaches a cluster
	"internal/version": apart, // the name of the build
	"internal/scrape":  apart, // who reads metrics
	"config":           apart, // embedded manifests
	"config/crd":       apart,

	"internal/floors": tests,
	"test/...":        tests,
}

// beside lists the packages that may be imported from their own floor, and by
// whom: each is a part of the whole that its importers are.
var beside = map[string][]string{
	"internal/action":  {"internal/identity"},
	"internal/lws/...": {"internal/lws/..."},
	"internal/report":  {"internal/apply"},
	"internal/webhook": {"internal/webhook/certs"},
	"internal/pvc":     {"internal/pvc/workloads"},
	"internal/cli/...": {"internal/cli/..."},
	"internal/install": {"internal/operator"}, // the configuration it reads
	"internal/connect": {"internal/version"},
	"config":           {"config/crd"},
	"test/...":         {"test/..."},
}

// wings are the two systems: sets and PVC protection. Neither imports the other.
var wings = map[string]string{
	"internal/lws/...":                 "sets",
	"internal/lwscache":                "sets",
	"internal/controller/lws":          "sets",
	"internal/pvc/...":                 "PVCs",
	"internal/pvccache":                "PVCs",
	"internal/controller/pvcfinalizer": "PVCs",
	"internal/controller/pvchold":      "PVCs",
	"internal/controller/podgate":      "PVCs",
}

// pkg is one package as the go command lists it.
type pkg struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Standard     bool
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports,Standard"}, args...)...)
	command.Dir = filepath.Join("..", "..")
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", args, err, &complaint)
	}
	var packages []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list %s: %v", args, err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatalf("go list %s: no packages", args)
	}
	return packages
}

// within is the path of a package within the module, if it is one of ours.
func within(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// entry returns the value for a path: its own, or that of the nearest "/..." above.
func entry[V any](table map[string]V, p string) (value V, ok bool) {
	if value, ok = table[p]; ok {
		return value, true
	}
	for above := p; above != "."; above = path.Dir(above) {
		if value, ok = table[above+"/..."]; ok {
			return value, true
		}
	}
	return value, false
}

func matches(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		above, below := strings.CutSuffix(pattern, "/...")
		return p == above || (below && strings.HasPrefix(p, above+"/"))
	})
}

// fault says what is wrong with an import, or is empty.
func fault(importer, imported string) string {
	from, ok := entry(floors, importer)
	if !ok {
		return importer + " stands on no floor: give it one in the table of this test"
	}
	to, ok := entry(floors, imported)
	if !ok {
		return imported + " stands on no floor: give it one in the table of this test"
	}
	allowed, _ := entry(beside, importer)
	wing, inWing := entry(wings, importer)
	other, inOther := entry(wings, imported)
	switch {
	case inWing && inOther && wing != other:
		return importer + " must not import " + imported + " of the other wing"
	case to == apart && from > apart && from <= f2:
		return importer + " must not import " + imported + ": it is about the world outside"
	case to < from, from == to && matches(allowed, imported):
		return ""
	case from == to:
		return importer + " must not import " + imported + " beside it"
	}
	return importer + " must not import " + imported + " above it"
}

func TestImportsGoDownward(t *testing.T) {
	for _, p := range list(t, "./...") {
		importer, ours := within(p.ImportPath)
		if !ours {
			continue
		}
		if _, ok := entry(floors, importer); !ok {
			t.Errorf("%s stands on no floor: give it one in the table of this test", importer)
			continue
		}
		for _, i := range p.Imports {
			if imported, ours := within(i); ours {
				if wrong := fault(importer, imported); wrong != "" {
					t.Error(wrong)
				}
			}
		}
	}
}

func TestTheTableNamesNothingThatIsGone(t *testing.T) {
	var standing []string
	for _, p := range list(t, "./...") {
		if ours, ok := within(p.ImportPath); ok {
			standing = append(standing, ours)
		}
	}
	for name := range floors {
		if strings.HasSuffix(name, "/...") || slices.Contains(standing, name) {
			continue
		}
		t.Errorf("%s is in the table and not in the tree: take it out", name)
	}
}

func TestFaultsAreFound(t *testing.T) {
	for _, tt := range []struct{ importer, imported, says string }{
		{"internal/lws", "internal/identity", ""},
		{"internal/lws", "internal/lwscache", "internal/lws must not import internal/lwscache above it"},
		{"internal/lwscache", "internal/apply", "internal/lwscache must not import internal/apply beside it"},
		{"internal/report", "internal/apply", ""},
		{"internal/pvccache", "internal/lws", "internal/pvccache must not import internal/lws of the other wing"},
		{"internal/lwscache", "internal/pvc", "internal/lwscache must not import internal/pvc of the other wing"},
		{"internal/lws", "internal/version", "internal/lws must not import internal/version: it is about the world outside"},
		{"internal/operator", "internal/version", ""},
		{"internal/controller/lws", "test/fakeapi", "internal/controller/lws must not import test/fakeapi above it"},
		{"internal/nowhere", "internal/lws", "internal/nowhere stands on no floor: give it one in the table of this test"},
	} {
		if got := fault(tt.importer, tt.imported); got != tt.says {
			t.Errorf("%s → %s: got %q, want %q", tt.importer, tt.imported, got, tt.says)
		}
	}
}

// pure are the packages that decide: nothing but their input may sway them.
func pure(t *testing.T) []pkg {
	t.Helper()
	return slices.DeleteFunc(list(t, "./api/...", "./internal/..."), func(p pkg) bool {
		ours, _ := within(p.ImportPath)
		stands, ok := entry(floors, ours)
		return !ok || stands < f0 || stands > f2
	})
}

// outside is what a pure package must not import, with what is below it.
var outside = []string{
	"context", "os/...", "net", "net/http/...", "math/rand/...", "crypto/rand", "log/...", "time/tzdata", "runtime", "syscall", "unsafe",
	"github.com/go-logr/...", "k8s.io/klog/...", "k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/...",
}

func TestDecisionsKnowNothingOfTheWorldOutside(t *testing.T) {
	packages := pure(t)
	if len(packages) < 6 {
		t.Fatalf("only %d packages are pure", len(packages))
	}
	for _, p := range packages {
		for _, imported := range p.Imports {
			if matches(outside, imported) {
				t.Errorf("%s imports %s", p.ImportPath, imported)
			}
		}
	}
}

// clocks are the functions of package time that look at a clock.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func TestDecisionsLookAtNoClock(t *testing.T) {
	files := 0
	for _, p := range pure(t) {
		for _, name := range p.GoFiles {
			files++
			for _, used := range clocksIn(t, filepath.Join(p.Dir, name), nil) {
				t.Errorf("%s looks at the clock", used)
			}
		}
	}
	if files < 20 {
		t.Fatalf("only %d files were read", files)
	}
}

func TestClocksAreFound(t *testing.T) {
	const source = "package p\nimport (\n\tt \"time\"\n\tmetav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n)\nvar a = t.Now()\nvar b = t.Since\nvar c = t.Second\nvar d = metav1.Now()\n"
	if got := clocksIn(t, "p.go", source); len(got) != 3 {
		t.Errorf("got %v, want 3 uses", got)
	}
}

// clocksIn returns where a file refers to a clock, under whatever name it
// imports package time.
func clocksIn(t *testing.T, name string, source any) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		local := path.Base(imported)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		names[local] = imported
	}
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := selector.X.(*ast.Ident)
		if ok && isClock(names[x.Name], selector.Sel.Name) {
			found = append(found, set.Position(selector.Pos()).String()+": "+x.Name+"."+selector.Sel.Name)
		}
		return true
	})
	return found
}

func isClock(imported, name string) bool {
	switch imported {
	case "time":
		return slices.Contains(clocks, name)
	case "k8s.io/apimachinery/pkg/apis/meta/v1":
		return name == "Now" || name == "NowMicro"
	}
	return false
}

// calls returns, for each package of the operator, where its files call methods
// of the given names.
func calls(t *testing.T, methods ...string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, p := range list(t, "./internal/...") {
		ours, _ := within(p.ImportPath)
		if stands, _ := entry(floors, ours); stands < f3 || stands > f4 {
			continue
		}
		for _, name := range p.GoFiles {
			found[ours] = append(found[ours], callsIn(t, filepath.Join(p.Dir, name), methods)...)
		}
	}
	return found
}

// callsIn returns where a file that knows the client package calls one of the
// methods with a context first.
func callsIn(t *testing.T, name string, methods []string) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		first, isName := call.Args[0].(*ast.Ident)
		if ok && isName && first.Name == "ctx" && slices.Contains(methods, selector.Sel.Name) {
			found = append(found, set.Position(call.Pos()).String()+": "+selector.Sel.Name)
		}
		return true
	})
	return found
}

// certificates are kept by webhook/certs, which reads and writes its own Secret
// and the configurations that trust it, before any controller runs.
const certificates = "internal/webhook/certs"

func TestOnlyActWrites(t *testing.T) {
	found := calls(t, "Create", "Update", "Patch", "Apply", "Delete", "DeleteAllOf")
	if len(found["internal/apply"]) == 0 {
		t.Error("no write was found in internal/apply: the test has gone blind")
	}
	for name, where := range found {
		if name != "internal/apply" && name != certificates && len(where) > 0 {
			t.Errorf("%s writes: %v", name, where)
		}
	}
}

func TestOnlyTheCachePackagesList(t *testing.T) {
	found := calls(t, "List")
	caches := []string{"internal/lwscache", "internal/pvccache"}
	for _, name := range caches {
		if len(found[name]) == 0 {
			t.Errorf("no list was found in %s: the test has gone blind", name)
		}
	}
	for name, where := range found {
		if !slices.Contains(caches, name) && name != certificates && len(where) > 0 {
			t.Errorf("%s lists: %v", name, where)
		}
	}
}

func TestOnlyTheLocalModuleKnowsKubernetesItself(t *testing.T) {
	for _, p := range list(t, "-deps", "-test", "./...") {
		if matches([]string{"k8s.io/kubernetes/..."}, p.ImportPath) {
			t.Errorf("%s is a dependency of the module", p.ImportPath)
		}
	}
}

func TestTheAPIKnowsNothingOfOurs(t *testing.T) {
	allowed := []string{"k8s.io/api/...", "k8s.io/apimachinery/...", "k8s.io/utils/..."}
	for _, p := range list(t, "./api/...") {
		for _, imported := range p.Imports {
			if strings.Contains(imported, ".") && !matches(allowed, imported) {
				t.Errorf("%s imports %s", p.ImportPath, imported)
			}
		}
	}
}

func TestOnlyTestsImportTestPackages(t *testing.T) {
	for _, p := range list(t, "./...") {
		importer, _ := within(p.ImportPath)
		if stands, _ := entry(floors, importer); stands == tests {
			continue
		}
		for _, i := range p.Imports {
			imported, ours := within(i)
			if stands, _ := entry(floors, imported); ours && stands == tests {
				t.Errorf("%s imports %s", importer, imported)
			}
		}
	}
}

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
