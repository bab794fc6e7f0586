package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
