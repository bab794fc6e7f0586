package survey

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestTroubleLastsUntilTheNextEvent(t *testing.T) {
	s := &Session{ctx: t.Context(), changed: make(chan struct{}, 1)}
	for _, step := range []struct {
		name string
		note error
		age  time.Duration
		want bool
	}{
		{"an event", nil, 0, false},
		{"a watch fails", errors.New("refused"), 0, true},
		{"an error that does not come again", errors.New("refused"), 2 * troubleLasts, false},
		{"an event", nil, 0, false},
	} {
		s.note(step.note)
		s.troubleAt = s.troubleAt.Add(-step.age)
		if got := s.Trouble() != nil; got != step.want {
			t.Errorf("%s: got %t", step.name, got)
		}
		if err := s.Await(0); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}

func TestAwaitEndsWithTheSession(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	expired := errors.New("expired")
	cancel(expired)
	s := &Session{ctx: ctx, changed: make(chan struct{}, 1)}
	for range 2 { // of several sets, each is followed in its turn
		if err := s.Await(time.Hour); !errors.Is(err, expired) {
			t.Errorf("got %v", err)
		}
	}
}
