// Package drill is what tests need that drive the built programs on a local control
// plane: the plane and the operator as processes, the audit log, and a reaper that
// takes everything down however a run ends.
//
// It knows what a user can see. It refuses to know what a test is about, and
// anything of the operator's inside: nothing here imports from internal.
package drill

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Patience bounds every wait for something that must come. It is far beyond what
// anything takes, so that a slow machine is not mistaken for a broken one.
const Patience = 150 * time.Second

// Program returns the absolute path of a built program.
func Program(name string) (string, error) {
	dir := os.Getenv("LOCKSTEP_BIN")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing: run make build", path)
	}
	return path, nil
}

// LastLines returns the end of a text file, or why it cannot be had.
func LastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// RunDir is where logs go, and what is to be done with it in the end.
func RunDir() (dir string, remove func(), err error) {
	if dir = os.Getenv("LOCKSTEP_KEEP"); dir != "" {
		return dir, func() {}, os.MkdirAll(dir, 0o755)
	}
	dir, err = os.MkdirTemp("", "lockstep-drill-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}
