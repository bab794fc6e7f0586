package process

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
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

// Copy writes a log to w. With follow it then waits for more, until ctx ends;
// a log that shrinks (a cluster begun anew) is read again from its beginning.
func Copy(ctx context.Context, path string, w io.Writer, follow bool) error {
	var offset int64
	for {
		copied, err := copyFrom(path, offset, w)
		if err != nil {
			return err
		}
		offset = copied
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// copyFrom writes what stands behind offset and returns the new offset.
func copyFrom(path string, offset int64, w io.Writer) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() < offset {
		offset = 0
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.Copy(w, file)
	return offset + n, err
}
