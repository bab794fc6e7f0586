package process

import (
	"os"
	"strings"
)

// Tail returns up to n last lines of a file, oldest first. A file that cannot be read has no
// lines.
func Tail(path string, n int) []string {
	data, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if lines[0] == "" && len(lines) == 1 {
		return nil
	}
	return lines[max(0, len(lines)-n):]
}
