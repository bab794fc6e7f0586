// Command mutate puts breakages into the code, one at a time, and reports which of them the quick tests find.
//
//	go run ./hack/mutate [-commit HEAD] [-only WORD]
//
// The list names each breakage by the promise that it breaks. The command works in a git worktree of its own.
//
// It refuses to know Go: a breakage is a text that is replaced.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	list := flag.String("list", "hack/mutate/breakages.txt", "list of breakages")
	commit := flag.String("commit", "HEAD", "commit to break")
	only := flag.String("only", "", "run only the breakages whose promise contains this text")
	limit := flag.Duration("limit", 10*time.Minute, "time limit of the tests of one breakage")
	dry := flag.Bool("dry", false, "build the broken code and run no tests")
	flag.Parse()
	if *dry {
		*limit = 0
	}
	if err := run(*list, *commit, *only, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(list, commit, only string, limit time.Duration) error {
	breakages, err := read(list)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lockstep-mutate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tree := tree{dir: filepath.Join(dir, "tree"), limit: limit}
	if out, err := exec.Command("git", "worktree", "add", "--detach", tree.dir, commit).CombinedOutput(); err != nil {
		return fmt.Errorf("add a worktree: %w\n%s", err, out)
	}
	defer func() { _ = exec.Command("git", "worktree", "remove", "--force", tree.dir).Run() }()

	count := map[outcome]int{}
	for _, b := range breakages {
		if !strings.Contains(b.promise, only) {
			continue
		}
		began := time.Now()
		result, detail := tree.try(b)
		count[result]++
		fmt.Printf("%-14s %4.0fs  %s  %s\n", result, time.Since(began).Seconds(), b.promise, detail)
	}
	applied := count[found] + count[notFound]
	fmt.Printf("\n%d of %d found (%.0f %%), %d do not apply, %d do not compile\n", count[found], applied,
		100*float64(count[found])/float64(max(applied, 1)), count[doesNotApply], count[doesNotCompile])
	return nil
}

type outcome string

const (
	found          outcome = "found"
	notFound       outcome = "NOT FOUND"
	doesNotApply   outcome = "does not apply"
	doesNotCompile outcome = "does not build"
)

// breakage is one entry of the list.
type breakage struct {
	promise, file string
	old, new      []string // lines
	tests         []string // packages whose tests must find it
}

// read parses a list: "== PROMISE" begins a breakage, "in FILE" its place, "-LINE" and "+LINE" are its text, and
// "test PACKAGE..." its tests. Without them it is tested by its own package, or the one above that has tests.
func read(path string) ([]breakage, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []breakage
	for i, line := range strings.Split(string(data), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case word == "==":
			all = append(all, breakage{promise: rest})
			continue
		case len(all) == 0:
			return nil, fmt.Errorf("%s:%d: no promise yet", path, i+1)
		}
		b := &all[len(all)-1]
		switch {
		case word == "in":
			b.file, b.tests = rest, []string{testsOf(filepath.Dir(rest))}
		case line[0] == '-':
			b.old = append(b.old, line[1:])
		case line[0] == '+':
			b.new = append(b.new, line[1:])
		case word == "test":
			b.tests = strings.Fields(rest)
		default:
			return nil, fmt.Errorf("%s:%d: %q is no line of a breakage", path, i+1, line)
		}
	}
	return all, nil
}

// testsOf returns the package of a directory, or the nearest above it that has tests.
func testsOf(dir string) string {
	if found, _ := filepath.Glob(filepath.Join(dir, "*_test.go")); len(found) == 0 && dir != "." {
		return testsOf(filepath.Dir(dir))
	}
	return "./" + dir
}

// tree is the worktree that is broken.
type tree struct {
	dir   string
	limit time.Duration // 0: run no tests
}

// try breaks the code, runs the tests, and mends the code.
func (t tree) try(b breakage) (outcome, string) {
	path := filepath.Join(t.dir, b.file)
	whole, err := os.ReadFile(path)
	if err != nil {
		return doesNotApply, err.Error()
	}
	old := strings.Join(b.old, "\n")
	if n := strings.Count(string(whole), old); n != 1 || old == "" {
		return doesNotApply, fmt.Sprintf("%s: the text is there %d times", b.file, n)
	}
	broken := strings.Replace(string(whole), old, strings.Join(b.new, "\n"), 1)
	if err := os.WriteFile(path, []byte(broken), 0o644); err != nil {
		return doesNotApply, err.Error()
	}
	defer func() { _ = os.WriteFile(path, whole, 0o644) }()
	if out, err := t.command("build", "./"+filepath.Dir(b.file)).CombinedOutput(); err != nil {
		return doesNotCompile, string(out)
	}
	if t.limit == 0 {
		return notFound, "not tested"
	}
	for _, tests := range b.tests {
		switch failed, err := t.test(tests); {
		case err != nil:
			return doesNotCompile, err.Error()
		case failed != "":
			return found, failed
		}
	}
	return notFound, strings.Join(b.tests, " ")
}

// test runs the tests of a package and returns the name of the first that fails.
func (t tree) test(tests string) (failed string, err error) {
	args := []string{"test", "-count=1", "-vet=off", "-failfast", "-timeout", t.limit.String(), tests}
	deps, err := t.command("list", "-test", "-deps", "-f", "{{.ImportPath}}", tests).Output()
	if err != nil {
		return "", fmt.Errorf("list %s: %w", tests, err)
	}
	if strings.Contains(string(deps), "pgregory.net/rapid\n") {
		args = append(args, "-rapid.seed=1", "-rapid.nofailfile")
	}
	out, err := t.command(args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return "", err
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); is {
			return name, nil
		}
	}
	if strings.Contains(string(out), "panic:") {
		return "a panic", nil
	}
	return "", fmt.Errorf("go test %s:\n%s", tests, out)
}

func (t tree) command(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = t.dir
	return cmd
}
