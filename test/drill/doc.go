// Package drill drives the built programs on a local control plane: the plane and the
// operator as processes, the audit log, and a reaper that ends all processes however a
// run ends.
//
// It knows what a user can see. It refuses to know the subject of a test and the inside
// of the operator: nothing here imports from internal.
package drill

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Patience bounds every wait. It is far longer than any step takes, so that a slow machine
// does not look like a broken one.
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

// LastLines returns the last lines of a text file, or the error of reading it.
func LastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
