package report_test

import (
	"io"
	"strings"
	"testing"
	"time"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/report"
)

// control is a text with control characters.
const control = "red \x1b[31m\u009b2Jand\ttwo\nlines\r\v\f"

// plainLine fails on control characters, and returns the line with the text.
func plainLine(t *testing.T, text string) string {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0) }); i >= 0 {
		t.Errorf("control characters in %q", text[i:])
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "red") {
			return line
		}
	}
	t.Errorf("the text is missing in:\n%s", text)
	return ""
}

func TestTextHasNoControlCharacters(t *testing.T) {
	history := &report.SetHistory{Revisions: []report.Revision{{Number: 1, Cause: control}}}
	waiting := &report.SetStatus{Waiting: []report.Wait{{Message: control}}}
	status := &report.SetStatus{Groups: []report.GroupStatus{{Wanted: true, Waiting: []report.Wait{{Message: control}}}}}
	failed := &report.SetStatus{Groups: []report.GroupStatus{{Failed: &report.GroupFailure{Pods: []lwsv1.PodFailure{{Pod: "a-0", Message: control}}}}}}
	plan := &report.SetPlan{Parts: []report.Part{{Waits: []report.Wait{{Message: control}}}}}
	revision := &report.SetRevision{Revision: report.Revision{Number: 1, Cause: control}}
	for name, write := range map[string]func(io.Writer, time.Time) error{
		"history": history.WriteText, "revision": revision.WriteText, "waiting": waiting.WriteText, "group": status.WriteText,
		"failure": failed.WriteText, "plan": plan.WriteText,
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			if err := write(&text, now); err != nil {
				t.Fatal(err)
			}
			if line := plainLine(t, text.String()); !strings.Contains(line, "and two lines") {
				t.Errorf("got %q", line)
			}
		})
	}
}
