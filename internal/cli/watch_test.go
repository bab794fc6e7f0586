package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Credentials run out once, and each of several sets is waited for in its turn.
func TestWhoeverWaitsHearsThatReadingHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		lost, expired := make(chan error), errors.New("expired")
		go tellOf(ctx, expired, lost)
		for range 3 {
			if err := await(ctx, nil, lost, false); !errors.Is(err, expired) {
				t.Errorf("got %v", err)
			}
		}
	})
}
