// Package render shows what kubectl lockstep found: as values with stable JSON names, and as text.
//
// It knows what each number means, how long a text may be, and the size of a terminal. It reads no
// cluster, and no clock but the moment that it is given.
package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"lockstep.dev/lockstep/internal/terminal"
)

// APIVersion is the version of all JSON that this package prints. Fields are added to it.
const APIVersion = "cli.lockstep.dev/v1"

func kind(k string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: APIVersion, Kind: k} }

// namedAtMost bounds how many objects a message names one by one.
const namedAtMost = 4

// Report is a value that commands print: as it is for programs, and as text for people.
type Report interface {
	GetObjectKind() schema.ObjectKind
	write(p *page)
}

// Printed is a report in the form that printers take. They change nothing of it.
type Printed struct{ Report }

// DeepCopyObject implements runtime.Object.
func (p Printed) DeepCopyObject() runtime.Object { return p }

// MarshalJSON implements json.Marshaler.
func (p Printed) MarshalJSON() ([]byte, error) { return json.Marshal(p.Report) }

// Text returns a report as text. Ages are those at now.
func Text(r Report, now time.Time) string { return textOf(now, r.write) }

func textOf(now time.Time, write func(*page)) string {
	p := &page{now: now}
	write(p)
	var aligned strings.Builder
	table := tabwriter.NewWriter(&aligned, 0, 0, 3, ' ', 0)
	_, _ = io.WriteString(table, p.String())
	_ = table.Flush()
	return aligned.String()
}

// page is a text. Neighbouring lines with cells are a table.
type page struct {
	strings.Builder
	now time.Time
}

// row is the cells of one line.
type row []any

// gap separates what follows from what the page has.
func (p *page) gap() {
	if p.Len() > 0 {
		p.WriteByte('\n')
	}
}

func (p *page) linef(format string, args ...any) {
	p.WriteString(plain(fmt.Sprintf(format, args...)) + "\n")
}

// section writes a title and its lines, or nothing if there are none.
func (p *page) section(title string, lines ...string) {
	if len(lines) == 0 {
		return
	}
	p.gap()
	p.linef("%s", title)
	for _, line := range lines {
		p.linef("  %s", line)
	}
}

// table writes rows under their columns, or nothing if there are none.
func (p *page) table(columns row, rows []row) {
	if len(rows) == 0 {
		return
	}
	p.gap()
	for _, cells := range append([]row{columns}, rows...) {
		var text []string
		for _, cell := range cells {
			text = append(text, cmp.Or(plain(fmt.Sprint(cell)), "-"))
		}
		p.WriteString(strings.Join(text, "\t") + "\n")
	}
}

// age formats a duration as kubectl does.
func (p *page) age(at *metav1.Time) string {
	if at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(p.now.Sub(at.Time), 0))
}

func (p *page) ageOf(at *time.Time) string {
	return p.age(&metav1.Time{Time: ptr.Deref(at, time.Time{})})
}

// plain keeps a text in its line and its cell: annotations and termination messages are those of others.
func plain(text string) string {
	return terminal.Escape(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(text))
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// few joins the first names, and counts the others.
func few(names []string) string { return terminal.Few(names, namedAtMost) }
