package process

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
)

// tailWindow bounds how much of a log is read to find its last lines.
const tailWindow = 64 << 10

// Tail returns up to n last lines of a file, oldest first. A file that is not
// there has no lines. Of a line longer than the window only the end is seen.
func Tail(path string, n int) ([]string, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	window := make([]byte, min(size, tailWindow))
	if _, err := file.ReadAt(window, size-int64(len(window))); err != nil && err != io.EOF {
		return nil, err
	}
	return lastLines(string(window), n), nil
}

func lastLines(text string, n int) []string {
	text = strings.TrimRight(text, "\n")
	if text == "" || n <= 0 {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-n):]
}
