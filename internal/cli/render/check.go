package render

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/cli/check"
	"lockstep.dev/lockstep/internal/cli/page"
)

// Checked is what "check -o json" prints.
type Checked struct {
	metav1.TypeMeta `json:",inline"`

	// Failures counts the lines with that result.
	Failures int          `json:"failures"`
	Lines    []check.Line `json:"lines"`
}

// Check returns the findings of a check.
func Check(lines []check.Line) *Checked {
	c := &Checked{TypeMeta: page.Kind("Check"), Lines: lines}
	for _, l := range lines {
		if l.Result == check.Failure {
			c.Failures++
		}
	}
	return c
}

// Write names the help for what is not well.
func (c *Checked) Write(p *page.Page) {
	var rows []page.Row
	var help []string
	for _, l := range c.Lines {
		rows = append(rows, page.Row{l.Result, l.Check, l.Message})
		if l.Result != check.OK && !slices.Contains(help, l.Help) {
			help = append(help, l.Help)
		}
	}
	p.Table(page.Row{"RESULT", "CHECK", "FOUND"}, rows)
	p.Section("what to do:", help...)
}
