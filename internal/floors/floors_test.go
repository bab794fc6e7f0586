package floors

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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
	"api/config/v1alpha1":     f0,
	"api/leaderworkerset/v1":  f0,
	"api/disaggregatedset/v1": f0,

	"internal/identity":   f1,
	"internal/action":     f1,
	"internal/backoff":    f1,
	"internal/condition":  f1,
	"internal/quantity":   f1,
	"internal/rollout":    f1,
	"internal/gang":       f1,
	"internal/definition": f1,

	"internal/lws":            f2,
	"internal/lws/admission":  f2,
	"internal/lws/group":      f2,
	"internal/lws/leaders":    f2,
	"internal/lws/restart":    f2,
	"internal/lws/revision":   f2,
	"internal/lws/scheduling": f2,
	"internal/lws/set":        f2,
	"internal/lws/status":     f2,
	"internal/lws/table":      f2,
	"internal/lws/undo":       f2,
	"internal/lws/volumes":    f2,
	"internal/lws/workload":   f2,

	"internal/disaggregated/...": f2,

	"internal/pvc":           f2,
	"internal/pvc/workloads": f2,

	"internal/definitioncache":    f3,
	"internal/lwscache":           f3,
	"internal/disaggregatedcache": f3,
	"internal/gangcache":          f3,
	"internal/budgetcache":        f3,
	"internal/pvccache":           f3,
	"internal/apply":              f3,
	"internal/memory":             f3,
	"internal/report":             f3,

	"internal/reconcile":                f4,
	"internal/reconcile/lws":            f4,
	"internal/controller/lws":           f4,
	"internal/controller/disaggregated": f4,
	"internal/controller/pvcfinalizer":  f4,
	"internal/controller/pvchold":       f4,
	"internal/controller/podgate":       f4,
	"internal/webhook":                  f4,
	"internal/webhook/certs":            f4,
	"scheduling":                        f4, // in another program, with that one's client

	"internal/cli/...":     f5,
	"internal/install/...": f5,
	"internal/operator":    f5,
	"cmd/...":              f6,
	"hack/...":             f6,

	"internal/file":     apart, // how much of a file is read
	"internal/kinds":    apart, // which kinds are served
	"internal/sieve":    apart, // which fields of pods are decoded
	"internal/lease":    apart, // who runs the controllers
	"internal/connect":  apart, // how a program reaches a cluster
	"internal/turn":     apart, // whose request is next
	"internal/version":  apart, // the name of the build
	"internal/scrape":   apart, // who reads metrics
	"config":            apart, // embedded manifests
	"config/crd":        apart,
	"internal/terminal": apart, // which characters are shown
	"internal/help":     apart, // the texts of commands

	"internal/floors": tests,
	"test/...":        tests,
}

// beside lists the packages that may be imported from their own floor, and by
// whom: each is a part of the whole that its importers are.
var beside = map[string][]string{
	"internal/action":                   {"internal/identity"},
	"internal/lws/...":                  {"internal/lws/..."},
	"internal/disaggregated/...":        {"internal/disaggregated/..."},
	"internal/disaggregatedcache":       {"internal/memory"},
	"internal/controller/disaggregated": {"internal/reconcile"},
	"internal/report":                   {"internal/apply"},
	"internal/lwscache":                 {"internal/budgetcache", "internal/definitioncache", "internal/gangcache", "internal/memory"},
	"internal/controller/lws":           {"internal/reconcile", "internal/reconcile/lws"},
	"internal/reconcile/lws":            {"internal/reconcile"},
	"internal/webhook":                  {"internal/webhook/certs"},
	"internal/pvc":                      {"internal/pvc/workloads"},
	"internal/cli/...":                  {"internal/cli/...", "internal/install/...", "internal/operator"}, // check knows what install writes
	"internal/install":                  {"internal/install/place", "internal/operator"},                   // the configuration it reads
	"internal/connect":                  {"internal/version"},
	"config":                            {"config/crd"},
	"api/disaggregatedset/v1":           {"api/leaderworkerset/v1"}, // a role has the spec of a set
	"test/...":                          {"test/..."},
}

// wings are the three systems: sets, sets of roles and PVC protection. None imports another.
var wings = map[string]string{
	"internal/lws/...":                  "sets",
	"internal/lwscache":                 "sets",
	"internal/gangcache":                "sets",
	"internal/budgetcache":              "sets",
	"internal/reconcile/lws":            "sets",
	"internal/controller/lws":           "sets",
	"internal/disaggregated/...":        "roles",
	"internal/disaggregatedcache":       "roles",
	"internal/controller/disaggregated": "roles",
	"internal/pvc/...":                  "PVCs",
	"internal/pvccache":                 "PVCs",
	"internal/controller/pvcfinalizer":  "PVCs",
	"internal/controller/pvchold":       "PVCs",
	"internal/controller/podgate":       "PVCs",
}

// pkg is one package as the go command lists it.
type pkg struct {
	ImportPath, Dir  string
	GoFiles, Imports []string
}

// list returns the packages that the go command lists for a pattern, once for all tests.
func list(t *testing.T, args string) []pkg {
	t.Helper()
	if known, ok := listed[args]; ok {
		return known
	}
	command := exec.Command("go", append(strings.Fields("list -e -json=ImportPath,Dir,GoFiles,Imports"), strings.Fields(args)...)...)
	command.Dir = filepath.Join("..", "..")
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	expect.Must(t, err == nil, "go list %s: %v\n%s", args, err, &complaint)
	var packages []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p pkg
		expect.OKf(t, decoder.Decode(&p), "go list %s", args)
		packages = append(packages, p)
	}
	expect.Must(t, len(packages) > 0, "go list %s: no packages", args)
	listed[args] = packages
	return packages
}

var listed = map[string][]pkg{}

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
	standing := map[string]bool{}
	for _, p := range list(t, "./...") {
		importer, ours := within(p.ImportPath)
		if !ours {
			continue
		}
		standing[importer] = true
		if _, ok := entry(floors, importer); !ok {
			t.Errorf("%s stands on no floor: give it one in the table of this test", importer)
			continue
		}
		for _, i := range p.Imports {
			imported, ours := within(i)
			wrong := fault(importer, imported)
			expect.That(t, !ours || wrong == "", "%v", wrong)
		}
	}
	for name := range floors {
		expect.That(t, standing[name] || strings.HasSuffix(name, "/..."),
			"%s is in the table and not in the tree: take it out", name)
	}
}

func TestFaultsAreFound(t *testing.T) {
	for _, tt := range []struct{ importer, imported, says string }{
		{"internal/lws", "internal/identity", ""},
		{"internal/lws", "internal/lwscache", "internal/lws must not import internal/lwscache above it"},
		{"internal/lwscache", "internal/apply", "internal/lwscache must not import internal/apply beside it"},
		{"internal/report", "internal/apply", ""},
		{"internal/pvccache", "internal/lws", "internal/pvccache must not import internal/lws of the other wing"},
		{"internal/disaggregated/admission", "internal/lws/admission", "internal/disaggregated/admission must not import internal/lws/admission of the other wing"},
		{"internal/lwscache", "internal/pvc", "internal/lwscache must not import internal/pvc of the other wing"},
		{"internal/lws", "internal/version", "internal/lws must not import internal/version: it is about the world outside"},
		{"internal/operator", "internal/version", ""},
		{"internal/controller/lws", "test/fakeapi", "internal/controller/lws must not import test/fakeapi above it"},
		{"internal/nowhere", "internal/lws", "internal/nowhere stands on no floor: give it one in the table of this test"},
	} {
		expect.Equalf(t, tt.says, fault(tt.importer, tt.imported), "%s → %s", tt.importer, tt.imported)
	}
}

// on returns our packages on the floors from lowest to highest.
func on(t *testing.T, lowest, highest floor) []pkg {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(list(t, "./...")), func(p pkg) bool {
		ours, _ := within(p.ImportPath)
		stands, ok := entry(floors, ours)
		return !ok || stands < lowest || stands > highest
	})
}

// outside is what a pure package must not import, with what is below it.
var outside = []string{
	"context", "os/...", "net", "net/http/...", "math/rand/...", "crypto/rand", "log/...", "time/tzdata", "runtime", "syscall", "unsafe",
	"github.com/go-logr/...", "k8s.io/klog/...", "k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/...",
}

// clocks are the functions that read a clock, by package.
var clocks = map[string][]string{
	"time":                                 {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now", "NowMicro"},
}

// Only their input decides: the packages up to floor 2 read neither the world nor a clock.
func TestDecisionsArePure(t *testing.T) {
	packages, files := on(t, f0, f2), 0
	for _, p := range packages {
		for _, imported := range p.Imports {
			expect.That(t, !matches(outside, imported), "%s imports %s", p.ImportPath, imported)
		}
		for _, name := range p.GoFiles {
			files++
			for _, used := range clocksIn(t, filepath.Join(p.Dir, name), nil) {
				t.Errorf("%s reads a clock", used)
			}
		}
	}
	expect.Must(t, len(packages) >= 6 && files >= 20, "only %d packages and %d files were read", len(packages), files)
}

func TestClocksAreFound(t *testing.T) {
	const source = "package p\nimport (\n\tt \"time\"\n\tmetav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n)\nvar a = t.Now()\nvar b = t.Since\nvar c = t.Second\nvar d = metav1.Now()\n"
	expect.Equalf(t, 3, len(clocksIn(t, "p.go", source)), "uses of a clock")
}

// nodesIn returns the position of each node of a file that is found, with its text.
func nodesIn(t *testing.T, name string, source any, find func(*ast.File, ast.Node) string) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	file := expect.Value(parser.ParseFile(set, name, source, parser.SkipObjectResolution))(t)
	ast.Inspect(file, func(node ast.Node) bool {
		if node != nil {
			if text := find(file, node); text != "" {
				found = append(found, set.Position(node.Pos()).String()+": "+text)
			}
		}
		return true
	})
	return found
}

// clocksIn returns where a file refers to a clock, under any name of the package.
func clocksIn(t *testing.T, name string, source any) []string {
	t.Helper()
	return nodesIn(t, name, source, func(file *ast.File, node ast.Node) string {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return ""
		}
		if x, ok := selector.X.(*ast.Ident); ok && slices.Contains(clocks[importedAs(file, x.Name)], selector.Sel.Name) {
			return x.Name + "." + selector.Sel.Name
		}
		return ""
	})
}

func importedAs(file *ast.File, name string) string {
	for _, spec := range file.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		if spec.Name == nil && path.Base(imported) == name || spec.Name != nil && spec.Name.Name == name {
			return imported
		}
	}
	return ""
}

// calls returns, for each package of the operator, where its files call methods of the given names
// with a context first.
func calls(t *testing.T, methods ...string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, p := range on(t, f3, f4) {
		ours, _ := within(p.ImportPath)
		if !strings.HasPrefix(ours, "internal/") { // the scheduler plugin writes with its own client
			continue
		}
		for _, name := range p.GoFiles {
			found[ours] = append(found[ours], nodesIn(t, filepath.Join(p.Dir, name), nil, func(_ *ast.File, node ast.Node) string {
				call, ok := node.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return ""
				}
				selector, ok := call.Fun.(*ast.SelectorExpr)
				first, isName := call.Args[0].(*ast.Ident)
				if ok && isName && first.Name == "ctx" && slices.Contains(methods, selector.Sel.Name) {
					return selector.Sel.Name
				}
				return ""
			})...)
		}
	}
	return found
}

func TestOnlyTheirPackagesWriteAndList(t *testing.T) {
	for _, tt := range []struct{ methods, packages []string }{
		{[]string{"Create", "Update", "Patch", "Apply", "Delete", "DeleteAllOf"}, []string{"internal/apply"}},
		{[]string{"List"}, []string{"internal/lwscache", "internal/disaggregatedcache", "internal/budgetcache", "internal/definitioncache", "internal/gangcache", "internal/pvccache", "internal/apply"}}, // what a write relies on
	} {
		found := calls(t, tt.methods...)
		for _, name := range tt.packages {
			expect.That(t, len(found[name]) > 0, "no %v was found in %s: the test has gone blind", tt.methods, name)
		}
		for name, where := range found {
			expect.That(t, slices.Contains(tt.packages, name) || len(where) == 0, "%s has %v", name, where)
		}
	}
}

func TestOnlyTheLocalModuleKnowsKubernetesItself(t *testing.T) {
	for _, p := range list(t, "-deps -test ./...") {
		expect.That(t, !matches([]string{"k8s.io/kubernetes/..."}, p.ImportPath),
			"%s is a dependency of the module", p.ImportPath)
	}
}

func TestTheAPIKnowsNothingOfOurs(t *testing.T) {
	allowed := []string{
		"k8s.io/api/...", "k8s.io/apimachinery/...", "k8s.io/utils/...", "k8s.io/component-base/config/v1alpha1",
		module + "/api/leaderworkerset/v1", // a role of a DisaggregatedSet has the spec of one
	}
	for _, p := range list(t, "./api/...") {
		for _, imported := range p.Imports {
			expect.That(t, !strings.Contains(imported, ".") || matches(allowed, imported),
				"%s imports %s", p.ImportPath, imported)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)

// A document that links to a file or a heading that is gone sends its reader nowhere.
func TestLinksInDocumentsResolve(t *testing.T) {
	root, links := filepath.Join("..", ".."), 0
	built := filepath.Join(root, "bin") // other versions are built there
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || path == built):
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
			expect.Equalf(t, "", resolve(path, match[1], match[2]), "%s", path)
		}
		return nil
	})
	expect.OK(t, err)
	expect.That(t, links >= 20, "found %d links: the documents are not where this test reads", links)
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
