package lws

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestAwaitEndsWithTheSession(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	expired := errors.New("expired")
	cancel(expired)
	s := &Session{ctx: ctx, changed: make(chan struct{}, 1)}
	for range 2 { // each of several sets is followed
		if err := s.Await(time.Hour); !errors.Is(err, expired) {
			t.Errorf("got %v", err)
		}
	}
}
