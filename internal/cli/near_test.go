package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEdits(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0},
		{"lama", "llama", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 2},
	}
	for _, tt := range tests {
		if got := edits(tt.a, tt.b); got != tt.want {
			t.Errorf("edits(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestAdvice(t *testing.T) {
	tests := []struct {
		name        string
		asked       string
		here, there []string
		want        string
	}{
		{"misspelt", "lama", []string{"mistral", "llama"}, nil, "; did you mean llama?"},
		{"the beginning", "llama", []string{"llama-405b-instruct", "qwen"}, nil, "; did you mean llama-405b-instruct?"},
		{"elsewhere", "llama", []string{"llamb"}, []string{"prod"}, "; there is one in prod: add -n prod"},
		{"quite another", "zebra", []string{"llama", "alpaca"}, nil, "; there are: alpaca, llama"},
		{"many others", "zebra", []string{"g1", "g2", "g3", "g4", "g5", "g6", "g7"}, nil, "; there are: g1, g2, g3, g4, g5 and 2 more"},
		{"none", "llama", nil, nil, ", nor any other; list those of all namespaces with: kubectl get leaderworkersets -A"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, advice(tt.asked, tt.here, tt.there)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
