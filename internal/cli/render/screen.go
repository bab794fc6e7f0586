package render

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Screen shows one text after the other: in place on a terminal.
type Screen struct {
	out io.Writer
	// height is the number of lines of the terminal, or 0 when there is none.
	height func() int
	key    string
	// between separates two texts where there is no terminal.
	between string
}

// NewScreen returns a screen on out.
func NewScreen(out io.Writer, between string) *Screen {
	return &Screen{out: out, between: between, height: func() int {
		file, isFile := out.(*os.File)
		if !isFile || os.Getenv("TERM") == "dumb" {
			return 0
		}
		_, height, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return 0
		}
		return height
	}}
}

// InPlace reports whether a text replaces the one before.
func (s *Screen) InPlace() bool { return s.height() > 1 }

// Show shows a text. Without a terminal it writes the text only if its key is another than the last one.
func (s *Screen) Show(text, key string) error {
	if s.InPlace() {
		_, err := fmt.Fprint(s.out, "\x1b[H\x1b[J", clip(text, s.height()-1))
		return err
	}
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

// clip returns the first lines of a text.
func clip(text string, height int) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines)-1 <= height {
		return text
	}
	return strings.Join(lines[:height-1], "") + fmt.Sprintf("… and %d more lines\n", len(lines)-height)
}
