package render_test

import (
	"io"
	"strings"
	"testing"
	"time"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/render"
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
	history := &render.SetHistory{Revisions: []render.Revision{{Number: 1, Cause: control}}}
	waiting := &render.SetStatus{Waiting: []render.Wait{{Message: control}}}
	status := &render.SetStatus{Groups: []render.GroupStatus{{Wanted: true, Waiting: []render.Wait{{Message: control}}}}}
	failed := &render.SetStatus{Groups: []render.GroupStatus{{Failed: &render.GroupFailure{Pods: []lwsv1.PodFailure{{Pod: "a-0", Message: control}}}}}}
	plan := &render.SetPlan{Parts: []render.Part{{Waits: []render.Wait{{Message: control}}}}}
	revision := &render.SetRevision{Revision: render.Revision{Number: 1, Cause: control}}
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
