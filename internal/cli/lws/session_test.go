package lws

import (
	"context"
	"errors"
	"testing"
)

func TestAwaitEndsWithTheSession(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	expired := errors.New("expired")
	cancel(expired)
	s := &Session{ctx: ctx}
	for range 2 { // each of several sets is followed
		if err := s.Await(); !errors.Is(err, expired) {
			t.Errorf("got %v", err)
		}
	}
}
