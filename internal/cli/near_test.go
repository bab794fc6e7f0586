package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAdvice(t *testing.T) {
	tests := []struct {
		name        string
		here, there []string
		want        string
	}{
		{"elsewhere", []string{"llamb"}, []string{"prod"}, "; there is one in prod: add -n prod"},
		{"others", []string{"llama", "alpaca"}, nil, "; there are: alpaca, llama"},
		{"many others", []string{"g1", "g2", "g3", "g4", "g5", "g6", "g7"}, nil, "; there are: g1, g2, g3, g4, g5 and 2 more"},
		{"none", nil, nil, ", nor any other; list those of all namespaces with: kubectl get leaderworkersets -A"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, advice("leaderworkersets", tt.here, tt.there)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
