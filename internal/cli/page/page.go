// Package page writes text for people: lines, sections and aligned tables.
//
// It knows how a text fits into lines and cells, and how a terminal shows a tone. It refuses to know what the text is about,
// and reads no clock but the moment that it is given.
package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"lockstep.dev/lockstep/internal/terminal"
)

// APIVersion is the version of all JSON that the commands print. Fields are added to it.
const APIVersion = "cli.lockstep.dev/v1"

// Kind returns the type of a report.
func Kind(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: APIVersion, Kind: kind} }

// NamedAtMost bounds how many objects a message names one by one.
const NamedAtMost = 4

// Report is a value that commands print: as it is for programs, and as text for people.
type Report interface {
	GetObjectKind() schema.ObjectKind
	Write(p *Page)
}

// Printed is a report in the form that printers take. They change nothing of it.
type Printed struct{ Report }

// DeepCopyObject implements runtime.Object.
func (p Printed) DeepCopyObject() runtime.Object { return p }

// MarshalJSON implements json.Marshaler.
func (p Printed) MarshalJSON() ([]byte, error) { return json.Marshal(p.Report) }

// Text returns a report as text. Ages are those at now.
func Text(r Report, now time.Time) string { return TextOf(now, r.Write) }

// Coloured returns a report as text for a terminal that shows colours.
func Coloured(r Report, now time.Time) string {
	return (&Page{Now: now, hasColours: true}).text(r.Write)
}

// TextOf returns what is written as text. Ages are those at now.
func TextOf(now time.Time, write func(*Page)) string { return (&Page{Now: now}).text(write) }

// Page is a text.
type Page struct {
	// Now is the moment from which ages count.
	Now time.Time

	written    strings.Builder
	hasColours bool
}

func (p *Page) text(write func(*Page)) string {
	write(p)
	return p.written.String()
}

// Tone is how a terminal shows a cell. The text alone says the same.
type Tone int

// The tones.
const (
	Good Tone = iota + 1
	Caution
	Bad
	Faint
)

// codes are the colours of ECMA-48 for the tones.
var codes = map[Tone]int{Good: 32, Caution: 33, Bad: 31, Faint: 2}

// Cell is a text with a tone.
type Cell struct {
	Text any
	Tone Tone
}

// Row is the cells of one line: values, or Cells.
type Row []any

// Gap separates what follows from what the page has.
func (p *Page) Gap() {
	if p.written.Len() > 0 {
		p.written.WriteByte('\n')
	}
}

// Linef writes one line.
func (p *Page) Linef(format string, args ...any) {
	p.written.WriteString(Plain(fmt.Sprintf(format, args...)) + "\n")
}

// Section writes a title and its lines, or nothing if there are none.
func (p *Page) Section(title string, lines ...string) {
	if len(lines) == 0 {
		return
	}
	p.Gap()
	p.Linef("%s", title)
	for _, line := range lines {
		p.Linef("  %s", line)
	}
}

// Quoted returns a text line by line under its title, or nothing.
func Quoted(title, text string) (lines []string) {
	if text == "" {
		return nil
	}
	if title != "" {
		lines = append(lines, title)
	}
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, "  | "+line)
	}
	return lines
}

// between is how many spaces separate two columns.
const between = 3

// Table writes rows under their columns, or nothing if there are none. All have as many cells.
func (p *Page) Table(columns Row, rows []Row) {
	if len(rows) == 0 {
		return
	}
	p.Gap()
	widths, lines := make([]int, len(columns)), [][]Cell{}
	for _, row := range append([]Row{columns}, rows...) {
		var line []Cell
		for i, cell := range row {
			shown, isToned := cell.(Cell)
			if !isToned {
				shown.Text = cell
			}
			text := cmp.Or(Plain(fmt.Sprint(shown.Text)), "-")
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
			line = append(line, Cell{text, shown.Tone})
		}
		lines = append(lines, line)
	}
	for _, line := range lines {
		for i, cell := range line {
			text := cell.Text.(string)
			p.written.WriteString(p.toned(text, cell.Tone))
			if i < len(line)-1 {
				p.written.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+between))
			}
		}
		p.written.WriteByte('\n')
	}
}

func (p *Page) toned(text string, tone Tone) string {
	if code, is := codes[tone]; is && p.hasColours {
		return fmt.Sprintf("\x1b[%dm%s\x1b[0m", code, text)
	}
	return text
}

// Age formats a duration as kubectl does.
func (p *Page) Age(at *metav1.Time) string {
	if at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(p.Now.Sub(at.Time), 0))
}

// AgeOf formats the time since a moment.
func (p *Page) AgeOf(at *time.Time) string {
	return p.Age(&metav1.Time{Time: ptr.Deref(at, time.Time{})})
}

// Plain keeps a text in its line and its cell: annotations and termination messages are those of others.
func Plain(text string) string {
	return terminal.Escape(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(text))
}

// Counted returns a number with its noun.
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Few joins the first names, and counts the others.
func Few(names []string) string { return terminal.Few(names, NamedAtMost) }

// Dash shows an empty text.
func Dash(text string) string { return cmp.Or(text, "-") }
