package apply

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"lockstep.dev/lockstep/internal/action"
)

// A refused write went unheard when another of its round found the cluster
// changed: the pass looked again at once, many times a second, and told nobody.
func TestAStaleWriteDoesNotHideTheErrorBesideIt(t *testing.T) {
	boom := errors.New("boom")
	stale := fmt.Errorf("conflict: %w", ErrStale)
	for name, tt := range map[string]struct {
		errs              [3]error
		wantBoom, isStale bool
	}{
		"the error comes first": {[3]error{nil, boom, stale}, true, false},
		"the error comes last":  {[3]error{nil, stale, boom}, true, false},
		"stale alone":           {[3]error{nil, stale, nil}, false, true},
		"every one stale":       {[3]error{nil, stale, stale}, false, true},
		"none":                  {[3]error{}, false, false},
	} {
		err := SlowStart(t.Context(), run(3), func(_ context.Context, a action.Action) error {
			return tt.errs[a.Target().Name[0]-'0']
		})
		if errors.Is(err, boom) != tt.wantBoom || errors.Is(err, ErrStale) != tt.isStale {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
