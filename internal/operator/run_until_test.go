package operator

import (
	"context"
	"errors"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// filling is a manager that runs what it was given once its caches are filled, if ever,
// and ends when it is told to.
type filling struct {
	ctrl.Manager
	added  []manager.Runnable
	begun  chan struct{}
	filled chan struct{}
}

func (f *filling) Add(r manager.Runnable) error { f.added = append(f.added, r); return nil }

var errEnded = errors.New("ended")

func (f *filling) Start(ctx context.Context) error {
	close(f.begun)
	<-f.filled
	for _, r := range f.added {
		if err := r.Start(ctx); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return errEnded
}

func TestAManagerWhoseCachesAreNotFilledIsNotWaitedFor(t *testing.T) {
	f := &filling{begun: make(chan struct{}), filled: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-f.begun; stop() }()
	if err := runUntil(ctx, f); err != nil {
		t.Error(err)
	}
}

func TestAManagerThatRunsIsLetEnd(t *testing.T) {
	f := &filling{begun: make(chan struct{}), filled: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	ends := make(chan error)
	go func() { ends <- runUntil(ctx, f) }()
	<-f.begun
	close(f.filled)
	select {
	case err := <-ends:
		t.Fatalf("ended by itself: %v", err)
	default:
	}
	for _, r := range f.added { // it may fill them a moment later
		<-r.(onceFilled).filled
	}
	stop()
	if err := <-ends; !errors.Is(err, errEnded) {
		t.Errorf("got %v", err)
	}
}
