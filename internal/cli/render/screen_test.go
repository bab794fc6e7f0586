package render

import (
	"strings"
	"testing"
)

func TestScreen(t *testing.T) {
	const top = "\x1b[H\x1b[J"
	for _, tt := range []struct {
		name   string
		height int
		texts  []string
		want   string
	}{
		{"no terminal: each text once", 0, []string{"a 1s\n", "a 2s\n", "b\n"}, "a 1s\n\nb\n"},
		{"terminal: in place", 24, []string{"a 1s\n", "a 2s\n"}, top + "a 1s\n" + top + "a 2s\n"},
		{"a small terminal", 4, []string{"a\nb\nc\nd\ne\n"}, top + "a\nb\n… and 3 more lines\n"},
		{"a terminal that is large enough", 4, []string{"a\nb\nc\n"}, top + "a\nb\nc\n"},
	} {
		var out strings.Builder
		s := NewScreen(&out, "\n")
		s.height = func() int { return tt.height }
		for _, text := range tt.texts {
			if err := s.Show(text, text[:1]); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, out.String(), tt.want)
		}
	}
}
