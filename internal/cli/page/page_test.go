package page

import (
	"strings"
	"testing"
	"time"

	"lockstep.dev/lockstep/test/expect"
)

func TestATableAlignsItsColumns(t *testing.T) {
	write := func(p *Page) {
		p.Linef("before")
		p.Table(Row{"GROUP", "STATE", "WHY"}, []Row{{0, Cell{"ready", Good}, ""}, {10, Cell{"ünready", Bad}, "a\tb\nc"}})
	}
	want := "before\n\nGROUP   STATE     WHY\n0       ready     -\n10      ünready   a b c\n"
	plain := TextOf(time.Time{}, write)
	expect.That(t, plain == want, "got %q", plain)
	coloured := (&Page{hasColours: true}).text(write)
	for code := range map[string]bool{"\x1b[32m": true, "\x1b[31m": true, "\x1b[0m": true} {
		expect.That(t, strings.Contains(coloured, code), "%q lacks %q", coloured, code)
		coloured = strings.ReplaceAll(coloured, code, "")
	}
	expect.That(t, coloured == want, "without colours: %q", coloured)
}

// A text of others steers no terminal, also where colours are shown.
func TestColoursComeFromNoText(t *testing.T) {
	text := (&Page{hasColours: true}).text(func(p *Page) {
		p.Linef("%s", "\x1b[2J")
		p.Table(Row{"A"}, []Row{{"\x1b[31m"}})
	})
	expect.That(t, !strings.Contains(text, "\x1b"), "got %q", text)
}
