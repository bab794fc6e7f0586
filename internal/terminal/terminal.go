// Package terminal shows text of others to people. It knows which characters steer a terminal or deceive its reader,
// and no command.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"

	"golang.org/x/term"
)

// Escape writes each character that shows nothing, or changes what others show, as JSON writes it: \u202e. So JSON
// keeps its meaning. Line feeds and tabs stay.
func Escape(text string) string {
	var escaped strings.Builder
	for _, r := range text {
		if r == '\n' || r == '\t' || isShown(r) {
			escaped.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&escaped, `\u%04x`, unit)
		}
	}
	return escaped.String()
}

// isShown reports whether a character has a glyph. Unicode counts some invisible ones as letters and marks.
func isShown(r rune) bool {
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Few joins the first names, and counts the others.
func Few(names []string, atMost int) string {
	return AndMore(names[:min(len(names), atMost)], len(names))
}

// AndMore joins the first of so many names, and counts the others.
func AndMore(first []string, all int) string {
	text := strings.Join(first, ", ")
	if more := all - len(first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Writer escapes what is written to a stream. Each write must hold whole characters.
func Writer(to io.Writer) io.Writer { return writer{to} }

type writer struct{ to io.Writer }

// Write implements io.Writer.
func (w writer) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.to, Escape(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Is reports whether a stream is a terminal.
func Is(stream io.Writer) bool {
	file, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// Fit cuts a text to the screen of a terminal, so that it does not scroll. The last line says how many lines are hidden.
func Fit(stream io.Writer, text string) string {
	if file, isFile := stream.(*os.File); isFile {
		if width, height, err := term.GetSize(int(file.Fd())); err == nil && width > 0 && height > 0 {
			return fit(text, width, height)
		}
	}
	return text
}

// fit leaves the last row of the screen to the cursor.
func fit(text string, width, height int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if room := max(height-1, 1); len(lines) > room {
		hidden := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("%d more lines are hidden: make the terminal higher", hidden))
	}
	for i, line := range lines {
		lines[i] = cut(line, width)
	}
	return strings.Join(lines, "\n") + "\n"
}

// cut ends a line at a width. Colours take no column, and end with the line.
func cut(line string, width int) string {
	end, isCode := "", false
	for i, r := range line {
		switch {
		case r == '\x1b':
			end, isCode = "\x1b[0m", true
		case isCode:
			isCode = r != 'm'
		case r >= '\u1100' && (r < '\u2000' || r >= '\u2e80'): // it may take two columns
			width -= 2
		default:
			width--
		}
		if width < 0 {
			return line[:i] + end
		}
	}
	return line
}
