package operator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// filling is a cache that has what it should have, or never will.
type filling struct {
	cache.Cache
	filled bool
}

func (f filling) WaitForCacheSync(ctx context.Context) bool {
	if !f.filled {
		<-ctx.Done()
	}
	return f.filled
}

func TestMemoryIsGivenBackOnceTheCachesAreFilled(t *testing.T) {
	for _, tt := range []struct {
		name   string
		filled bool
		runs   time.Duration
		want   int
	}{
		{"to the end", true, time.Minute, len(settleAfter)},
		{"ended early", true, settleAfter[0] + time.Second, 1},
		{"never filled", false, time.Minute, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.runs)
				defer cancel()
				freed := 0
				s := settling{caches: filling{filled: tt.filled}, after: settleAfter, free: func() { freed++ }}
				if err := s.Start(ctx); err != nil || freed != tt.want {
					t.Errorf("given back %d times, %v; want %d", freed, err, tt.want)
				}
			})
		})
	}
}
