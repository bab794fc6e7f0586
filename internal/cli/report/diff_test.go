package report

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestUnified(t *testing.T) {
	tests := []struct{ name, from, to, want string }{
		{"the same", "a\nb\n", "a\nb\n", ""},
		{"nothing", "", "", ""},
		{"from nothing", "", "a\nb\n", "--- x\n+++ y\n@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"to nothing", "a\n", "", "--- x\n+++ y\n@@ -1 +0,0 @@\n-a\n"},
		{"one line", "a\nb\nc\n", "a\nB\nc\n", "--- x\n+++ y\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
		{"far apart", "a\n1\n2\n3\n4\n5\n6\n7\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\nB\n",
			"--- x\n+++ y\n@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-b\n+B\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, unified("x", "y", tt.from, tt.to)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestComparisonsAreWhole: what is kept and taken away is the first text, what is
// kept and added the second, and the same text differs in nothing.
func TestComparisonsAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 0, 12)
		from, to := some.Draw(t, "from"), some.Draw(t, "to")
		var before, after []string
		for _, e := range compare(from, to) {
			if e.mark != '+' {
				before = append(before, e.line)
			}
			if e.mark != '-' {
				after = append(after, e.line)
			}
		}
		if strings.Join(before, "\n") != strings.Join(from, "\n") || strings.Join(after, "\n") != strings.Join(to, "\n") {
			t.Fatalf("%q and %q became %q and %q", from, to, before, after)
		}
		if kept, most := keptOf(compare(from, to)), longestCommon(from, to); kept != most {
			t.Fatalf("%q and %q have %d lines in common, and %d are kept", from, to, most, kept)
		}
		if hunks := hunksOf(compare(from, from)); len(hunks) != 0 {
			t.Fatalf("%q differs from itself: %v", from, hunks)
		}
	})
}

func keptOf(edits []lineEdit) int {
	kept := 0
	for _, e := range edits {
		if e.mark == ' ' {
			kept++
		}
	}
	return kept
}

// longestCommon is defined by itself, as slow as that is.
func longestCommon(a, b []string) int {
	known := map[[2]int]int{}
	var from func(i, j int) int
	from = func(i, j int) int {
		if i == len(a) || j == len(b) {
			return 0
		}
		if n, ok := known[[2]int{i, j}]; ok {
			return n
		}
		n := max(from(i+1, j), from(i, j+1))
		if a[i] == b[j] {
			n = from(i+1, j+1) + 1
		}
		known[[2]int{i, j}] = n
		return n
	}
	return from(0, 0)
}

// A template may be as long as the API server takes it, and differ in every line.
func TestComparingLongTextsTakesLittleMemory(t *testing.T) {
	const lines = 2000
	from, to := make([]string, lines), make([]string, lines)
	for i := range lines {
		from[i], to[i] = fmt.Sprint("from ", i), fmt.Sprint("to ", i)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	compare(from, to)
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(lines*1024); got > most {
		t.Errorf("comparing 2 texts of %d lines took %d bytes, at most %d are allowed", lines, got, most)
	}
}

func TestChanges(t *testing.T) {
	list := func(elements ...any) any { return elements }
	named := func(name, image string) any { return map[string]any{"name": name, "image": image} }
	tests := []struct {
		name     string
		from, to map[string]any
		want     []string
	}{
		{"none", map[string]any{"a": 1}, map[string]any{"a": 1}, nil},
		{"a field", map[string]any{"size": 1, "same": true}, map[string]any{"size": 2, "same": true}, []string{"size: 1 → 2"}},
		{"added", map[string]any{}, map[string]any{"env": "x"}, []string{"env: added x"}},
		{"removed", map[string]any{"env": "x"}, map[string]any{}, []string{"env: removed x"}},
		{"a named element", map[string]any{"c": list(named("a", "1"), named("b", "1"))}, map[string]any{"c": list(named("b", "2"), named("a", "1"))},
			[]string{"c[b].image: 1 → 2"}},
		{"an element more", map[string]any{"c": list(named("a", "1"))}, map[string]any{"c": list(named("a", "1"), named("b", "2"))},
			[]string{`c[b]: added {"image":"2","name":"b"}`}},
		{"a plain list", map[string]any{"args": list("x")}, map[string]any{"args": list("y")}, []string{`args: ["x"] → ["y"]`}},
		{"something long", map[string]any{"a": ""}, map[string]any{"a": strings.Repeat("é", 100)}, []string{"a:  → " + strings.Repeat("é", 59) + "…"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range changes("", tt.from, tt.to) {
				got = append(got, c.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
