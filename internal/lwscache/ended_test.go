package lwscache_test

import (
	"testing"
	"time"

	"lockstep.dev/lockstep/internal/lwscache"
)

func TestADeletionIsTakenOnTrustForAWhile(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	memory := lwscache.NewMemory(now)
	if memory.HasEnded("u", now) {
		t.Error("remembers what was never deleted")
	}
	memory.Ended("u", now)
	if !memory.HasEnded("u", now.Add(10*time.Second)) || memory.HasEnded("other", now) {
		t.Error("does not know what was deleted")
	}
	if memory.HasEnded("u", now.Add(time.Hour)) {
		t.Error("trusts a deletion for ever: a server that was given back an older state is never asked again")
	}
}
