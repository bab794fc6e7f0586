// Package screen shows a text that changes: in place on a terminal, one after the
// other elsewhere. It knows the size of the terminal and nothing of what is shown.
package screen

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Screen shows one text at a time. It is not safe for concurrent use.
type Screen struct {
	out io.Writer
	// size is the size of the terminal, and false when there is none.
	size  func() (width, height int, ok bool)
	lines int // how many lines of the shown text stand above the cursor
	key   string
	// between is written between two texts elsewhere than on a terminal.
	between string
}

// New returns a screen that shows texts on out. Elsewhere than on a terminal,
// between is written between two of them.
func New(out io.Writer, between string) *Screen {
	return &Screen{out: out, size: func() (int, int, bool) { return sizeOf(out) }, between: between}
}

func sizeOf(out io.Writer) (width, height int, ok bool) {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	return width, height, err == nil && width > 0 && height > 1
}

// InPlace reports whether a text takes the place of the one before.
func (s *Screen) InPlace() bool {
	_, _, ok := s.size()
	return ok
}

// Show shows a text. Elsewhere than on a terminal it is written only if its key
// is another than that of the text before.
func (s *Screen) Show(text, key string) error {
	width, height, inPlace := s.size()
	if !inPlace {
		if key == s.key {
			return nil
		}
		if s.key != "" {
			text = s.between + text
		}
		s.key = key
		_, err := io.WriteString(s.out, text)
		return err
	}
	lines := clip(strings.Split(strings.TrimRight(text, "\n"), "\n"), width, height)
	var out strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&out, "\x1b[%dA\r", s.lines)
	}
	for _, line := range lines {
		out.WriteString(line + "\x1b[K\n")
	}
	out.WriteString("\x1b[J")
	s.lines = len(lines)
	_, err := io.WriteString(s.out, out.String())
	return err
}

// Keep leaves what is shown where it is: the next text goes below.
func (s *Screen) Keep() { s.lines, s.key = 0, "" }

// clip makes lines fit: what goes beyond the last column or row cannot be taken
// back.
func clip(lines []string, width, height int) []string {
	clipped := make([]string, 0, len(lines))
	for _, line := range lines {
		if utf8.RuneCountInString(line) >= width {
			line = string([]rune(line)[:width-1]) + "…"
		}
		clipped = append(clipped, line)
	}
	if rows := height - 1; len(clipped) > rows {
		more := fmt.Sprintf("… and %d more lines", len(clipped)-rows+1)
		clipped = append(clipped[:rows-1], more)
	}
	return clipped
}
