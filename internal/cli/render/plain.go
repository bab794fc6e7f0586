package render

import (
	"io"
	"strings"
	"unicode"
)

// show writes a text without control characters: annotations and termination messages of others must
// not steer the terminal of the user.
func show(out io.Writer, text string) error {
	_, err := io.WriteString(out, strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text))
	return err
}

// inLine is a text that stands in one line, or in one cell of a table.
func inLine(text string) string {
	if !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || unicode.IsControl(r) }), " ")
}
