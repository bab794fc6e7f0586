package pvcfinalizer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func newTestBacklog() (*backlog, *clocktesting.FakeClock) {
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	return newBacklog(clock, func(string) time.Duration { return 0 }), clock
}

func namesOf(keys []types.NamespacedName) (names []string) {
	for _, k := range keys {
		names = append(names, k.String())
	}
	return names
}

func TestAClaimCountsUntilItIsDone(t *testing.T) {
	b, _ := newTestBacklog()
	b.add(key("a", "1"))
	b.add(key("a", "2"))
	b.add(key("b", "3"))
	b.add(key("a", "1")) // once
	if b.depth() != 3 {
		t.Fatalf("depth %d", b.depth())
	}
	first := b.take(t.Context())
	if diff := cmp.Diff([]string{"a/1", "a/2"}, namesOf(first)); diff != "" {
		t.Errorf("a namespace goes together (-want +got)\n%s", diff)
	}
	if b.depth() != 3 {
		t.Errorf("taken, and the depth is %d", b.depth())
	}
	for _, k := range first {
		b.done(k)
	}
	if b.depth() != 1 {
		t.Errorf("done, and the depth is %d", b.depth())
	}
}

func TestWhatHappensMeanwhileIsNotForgotten(t *testing.T) {
	b, _ := newTestBacklog()
	b.add(key("a", "1"))
	b.take(t.Context())
	b.add(key("a", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.looked("a")
	if keys := b.take(ctx); keys != nil {
		t.Fatalf("%v is looked at twice at a time", keys)
	}
	b.done(key("a", "1"))
	if diff := cmp.Diff([]string{"a/1"}, namesOf(b.take(t.Context()))); diff != "" {
		t.Error(diff)
	}
}

func TestAnAddWakesWhoWaits(t *testing.T) {
	b, _ := newTestBacklog()
	got := make(chan []types.NamespacedName)
	go func() { got <- b.take(context.Background()) }()
	b.add(key("a", "1"))
	if keys := <-got; len(keys) != 1 {
		t.Errorf("got %v", keys)
	}
}

func TestRetriesComeLaterEachTimeAndCount(t *testing.T) {
	b, clock := newTestBacklog()
	k := key("a", "1")
	for _, pause := range []time.Duration{firstRetry, 2 * firstRetry, 4 * firstRetry} {
		b.add(k)
		b.take(t.Context())
		b.retry(k)
		b.looked(k.Namespace)
		b.done(k)
		if b.depth() != 1 {
			t.Errorf("a claim that is owed a retry does not count")
		}
		clock.Step(pause - 1)
		if keys, _ := b.taken(); keys != nil {
			t.Fatalf("before %v", pause)
		}
		clock.Step(1)
		if keys, _ := b.taken(); len(keys) != 1 {
			t.Fatalf("not after %v", pause)
		}
		b.looked(k.Namespace)
		b.done(k)
	}
	b.succeeded(k)
	b.retry(k)
	clock.Step(firstRetry)
	if keys, _ := b.taken(); len(keys) != 1 {
		t.Error("the memory of failures outlives a success")
	}
}

func TestAReminderDoesNotCountAndGivesWay(t *testing.T) {
	b, clock := newTestBacklog()
	k := key("a", "1")
	b.remind(k, time.Minute)
	if b.depth() != 0 {
		t.Errorf("depth %d", b.depth())
	}
	b.add(k)
	if keys, _ := b.taken(); len(keys) != 1 {
		t.Fatal("an event waits for a reminder")
	}
	b.looked(k.Namespace)
	b.done(k)
	clock.Step(time.Hour)
	if keys, _ := b.taken(); keys != nil {
		t.Error("reminded of what was seen to")
	}
	b.remind(k, time.Minute)
	clock.Step(time.Minute)
	if keys, _ := b.taken(); len(keys) != 1 {
		t.Error("not reminded")
	}
}

func TestAnEventCutsARetryShort(t *testing.T) {
	b, _ := newTestBacklog()
	k := key("a", "1")
	b.retry(k)
	b.add(k)
	if keys, _ := b.taken(); len(keys) != 1 || b.depth() != 1 {
		t.Errorf("got %v, depth %d", keys, b.depth())
	}
}

func TestNamespacesTakeTurns(t *testing.T) {
	b, _ := newTestBacklog()
	for i := range atOnce + 1 {
		b.add(key("large", fmt.Sprint(i)))
	}
	b.add(key("small", "1"))
	var turns []string
	for range 3 {
		keys := b.take(t.Context())
		if len(turns) == 1 {
			b.looked("large")
		}
		turns = append(turns, fmt.Sprint(keys[0].Namespace, " ", len(keys)))
	}
	if diff := cmp.Diff([]string{fmt.Sprint("large ", atOnce), "small 1", "large 1"}, turns); diff != "" {
		t.Error(diff)
	}
}

// What comes while pods are being read waits for the next reading, which all of it
// shares: it may have come after this one began.
func TestWhatComesDuringALookSharesTheNext(t *testing.T) {
	b, _ := newTestBacklog()
	b.add(key("a", "1"))
	b.take(t.Context())
	b.add(key("a", "2"))
	b.add(key("b", "1"))
	b.add(key("a", "3"))
	if keys, _ := b.taken(); len(keys) != 1 || keys[0].Namespace != "b" {
		t.Fatalf("took %v beside a look at its namespace", keys)
	}
	if keys, _ := b.taken(); keys != nil {
		t.Fatalf("took %v beside a look at its namespace", keys)
	}
	if b.depth() != 4 {
		t.Errorf("depth %d", b.depth())
	}
	b.looked("a")
	if diff := cmp.Diff([]string{"a/2", "a/3"}, namesOf(b.take(t.Context()))); diff != "" {
		t.Error(diff)
	}
}

func TestANamespaceGathersClaims(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	b := newBacklog(clock, func(string) time.Duration { return gatherFor })
	b.add(key("a", "1"))
	clock.Step(gatherFor - 1)
	b.add(key("a", "2"))
	if keys, _ := b.taken(); keys != nil || b.depth() != 2 {
		t.Fatalf("took %v before others could come, depth %d", keys, b.depth())
	}
	clock.Step(1)
	if keys, _ := b.taken(); len(keys) != 2 {
		t.Errorf("took %v", keys)
	}
	b.add(key("a", "3")) // what came during a look has waited long enough
	b.looked("a")
	if keys, _ := b.taken(); len(keys) != 1 {
		t.Errorf("took %v", keys)
	}
}

// Whatever happens in whichever order: every claim that was added is taken after it
// was, nothing is taken twice at a time, and in the end nothing is left.
func TestBacklogLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
		b := newBacklog(clock, func(namespace string) time.Duration {
			return map[string]time.Duration{"b": 50 * time.Millisecond}[namespace]
		})
		looking := map[string]bool{}
		owed, working := map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
		take := func() {
			keys, _ := b.taken()
			for _, k := range keys {
				if looking[k.Namespace] && k == keys[0] {
					t.Fatalf("%s is looked at twice at a time", k.Namespace)
				}
				looking[k.Namespace] = true
				if working[k] {
					t.Fatalf("%v is taken twice", k)
				}
				working[k], owed[k] = true, false
			}
		}
		look := func(namespace string) {
			if looking[namespace] {
				delete(looking, namespace)
				b.looked(namespace)
			}
		}
		end := func(k types.NamespacedName) {
			if working[k] {
				delete(working, k)
				b.done(k)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			k := key(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"), rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "name"))
			switch rapid.IntRange(0, 5).Draw(t, "do") {
			case 0:
				b.add(k)
				owed[k] = true
			case 1:
				b.retry(k)
				owed[k] = true
			case 2:
				take()
			case 3:
				end(k)
			case 4:
				clock.Step(time.Duration(rapid.IntRange(1, 100).Draw(t, "ms")) * time.Millisecond)
			case 5:
				look(k.Namespace)
			}
		}
		for range 3 { // what is owed to a claim in work comes once that ends
			look("a")
			look("b")
			for k := range working {
				end(k)
			}
			clock.Step(2 * lastRetry)
			take()
			take()
		}
		for k := range working {
			end(k)
		}
		for k, o := range owed {
			if o {
				t.Errorf("%v is lost", k)
			}
		}
		if b.depth() != 0 {
			t.Errorf("depth %d in the end", b.depth())
		}
	})
}
