package pvcfinalizer

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// Mode observe tells both ends of what others do: that a deletion is postponed, and that
// it goes on, each once.
func TestAnObservedDeletionIsToldToGoOn(t *testing.T) {
	observed := func() *corev1.PersistentVolumeClaim {
		c := deleted(claim("c", other, p))
		c.Annotations = map[string]string{pvc.ModeKey: "observe"}
		return c
	}
	told := func(w *world, postponed, released int) {
		t.Helper()
		got := w.events()
		if strings.Count(got, "DeletionPostponed") != postponed || strings.Count(got, "DeletionReleased") != released {
			t.Errorf("told %q, want %d that it is postponed and %d that it goes on", got, postponed, released)
		}
	}

	w := newWorld(t, beside, user("u", "c"), observed())
	w.pass("c")
	told(w, 1, 0)
	w.remove(user("u"))
	w.follow()
	w.drain()
	told(w, 0, 1)
	w.pass("c")
	w.claimGone(observed())
	told(w, 0, 0)

	// The controller that is built in may be faster than the look.
	w = newWorld(t, beside, user("u", "c"), observed())
	w.pass("c")
	w.claimGone(observed())
	told(w, 1, 1)

	// Who took over tells it of what was there before, as long as pods may have been the reason.
	for _, finalizers := range [][]string{{other, p}, {other}} {
		c := observed()
		c.Finalizers = finalizers
		w = newWorld(t, beside, c)
		w.narrate.Begin(c.DeletionTimestamp.Add(time.Hour))
		w.pass("c")
		w.pass("c")
		told(w, 0, len(finalizers)-1)
	}

	// Nobody was told to wait for one that nobody used, nor is told that it goes on.
	w = newWorld(t, beside, observed())
	w.pass("c")
	w.claimGone(observed())
	told(w, 0, 0)
}
