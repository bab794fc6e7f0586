package screen

import (
	"strings"
	"testing"
)

func onTerminal(out *strings.Builder, width, height int) *Screen {
	return &Screen{out: out, size: func() (int, int, bool) { return width, height, true }}
}

func TestElsewhereTextsFollowEachOtherOnceEach(t *testing.T) {
	var out strings.Builder
	s := New(&out, "\n")
	for _, text := range []string{"a 1s\n", "a 2s\n", "b\n"} {
		if err := s.Show(text, text[:1]); err != nil {
			t.Fatal(err)
		}
	}
	if want := "a 1s\n\nb\n"; out.String() != want || s.InPlace() {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestOnATerminalATextTakesThePlaceOfTheOneBefore(t *testing.T) {
	var out strings.Builder
	s := onTerminal(&out, 80, 24)
	_ = s.Show("one\ntwo\nthree\n", "")
	out.Reset()
	_ = s.Show("four\n", "")
	if want := "\x1b[3A\rfour\x1b[K\n\x1b[J"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestNothingGoesBeyondTheTerminal(t *testing.T) {
	lines := clip([]string{"1234567890", "äöüäöüäöü", "short", "x", "y"}, 8, 4)
	want := []string{"1234567…", "äöüäöüä…", "… and 3 more lines"}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", lines, want)
	}
	if got := clip([]string{"a", "b", "c"}, 80, 4); len(got) != 3 {
		t.Errorf("three lines fit a terminal of four, got %q", got)
	}
}
