package lwscache

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// What was found of a group for the set before is not known to the one that was made again
// around its pods: it is told the same as news.
func TestWhatWasFoundForTheSetBeforeIsNewsToTheOneMadeAgain(t *testing.T) {
	m := NewMemory(awake)
	found := lws.Finding{Leader: identity.Ref{Namespace: "ns", Name: "w-0", UID: "leader"}, Set: "before", Started: "record"}
	for _, tt := range []struct {
		set  string
		news bool
	}{{"before", true}, {"before", false}, {"again", true}, {"again", false}} {
		finding := found
		finding.Set = types.UID(tt.set)
		if news := m.Found(&finding); news != tt.news {
			t.Errorf("to set %q it is news: %v", tt.set, news)
		}
	}
}
