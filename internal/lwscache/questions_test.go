package lwscache_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/lwstest"
)

// companions are two looks at a set that need the same owner. The first is still
// waiting for the API server's answer.
type companions struct {
	*eyes
	second *lwstest.FakeReader
	ghosts chan int
	answer func()
}

// askedTogether begins two looks whose leader belongs to owner. The second ends by
// the given time.
func askedTogether(t *testing.T, owner identity.Ref, prepare func(*eyes), within time.Duration) companions {
	t.Helper()
	e, _, _ := chained(t)
	prepare(e)
	own(e, owner)
	answered := make(chan struct{})
	e.live.Fail = func(lwstest.Name) error { <-answered; return nil }
	c := companions{eyes: e, second: e.Live(), ghosts: make(chan int, 2), answer: func() { close(answered) }}
	look := func(o *lwscache.Observer, ctx context.Context) {
		w, err := o.Set(ctx, key("w"), e.Now)
		if err != nil {
			t.Error(err)
		}
		c.ghosts <- len(w.Leaders.Ghosts)
	}
	go look(e.observer, t.Context())
	synctest.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	go look(lwscache.New(e.Cached(), c.second, e.memory), ctx)
	synctest.Wait()
	return c
}

func asFound(*eyes) {}

func TestTwoLooksThatNeedTheSameOwnerAskOnceIfItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := askedTogether(t, lwstest.Former(identity.KindStatefulSet, "other"), asFound, time.Hour)
		c.answer()
		if first, second := <-c.ghosts, <-c.ghosts; first != 1 || second != 1 {
			t.Errorf("got %d and %d ghosts, want 1 and 1", first, second)
		}
		if c.live.Reads != 1 || c.second.Reads != 0 {
			t.Errorf("asked %d and %d times, want 1 and 0", c.live.Reads, c.second.Reads)
		}
	})
}

// The answer that an owner is there may be older than the second look.
func TestALookBelievesNoOneElseThatAnOwnerIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var owner *appsv1.StatefulSet
		hidden := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: lwstest.Namespace, Name: "other"}}
		ref := lwstest.Former(identity.KindStatefulSet, "other")
		hidden.UID = ref.UID
		c := askedTogether(t, ref, func(e *eyes) { owner = lwstest.Add(e.FakeStore, hidden) }, time.Hour)
		if owner.UID != ref.UID {
			t.Fatalf("the owner has UID %s, not %s", owner.UID, ref.UID)
		}
		if c.second.Reads != 0 {
			t.Errorf("asked %d times beside another", c.second.Reads)
		}
		c.answer()
		if first, second := <-c.ghosts, <-c.ghosts; first != 0 || second != 0 {
			t.Errorf("got %d and %d ghosts, want none", first, second)
		}
		if c.second.Reads != 1 {
			t.Errorf("asked %d times, want once", c.second.Reads)
		}
	})
}

func TestALookThatEndsWaitsForNoOneElsesAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := askedTogether(t, lwstest.Former(identity.KindStatefulSet, "other"), asFound, time.Second)
		if c.second.Reads != 0 {
			t.Errorf("asked %d times beside another", c.second.Reads)
		}
		if second := <-c.ghosts; second != 1 || c.second.Reads != 1 {
			t.Errorf("got %d ghosts and asked %d times, want 1 and 1", second, c.second.Reads)
		}
		c.answer()
		<-c.ghosts
	})
}
