package turn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"lockstep.dev/lockstep/test/expect"
)

func of(namespace string, i int) request {
	return request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}}
}

func newQueue(t *testing.T) workqueue.TypedRateLimitingInterface[request] {
	q := NewQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[request](time.Millisecond, time.Second))
	t.Cleanup(q.ShutDown)
	return q
}

// served returns the next requests, as they are served.
func served(q workqueue.TypedRateLimitingInterface[request], n int) string {
	var names []string
	for range n {
		r, _ := q.Get()
		names = append(names, r.Namespace+r.Name)
		q.Done(r)
	}
	return strings.Join(names, " ")
}

func TestNamespacesAreServedInTurn(t *testing.T) {
	q := newQueue(t)
	for i := range 4 {
		q.Add(of("a", i))
	}
	q.Add(of("b", 0))
	q.Add(of("b", 1))
	q.Add(of("a", 0)) // it waits already
	q.Add(of("", 0))
	got := served(q, 2)
	expect.That(t, got == "a0 b0" && q.Len() == 5, "got %s, and %d wait", got, q.Len())
	q.Add(of("c", 0)) // it takes its turn behind those that wait
	if got := served(q, 6); got != "0 a1 b1 c0 a2 a3" || q.Len() != 0 {
		t.Errorf("got %s, and %d wait", got, q.Len())
	}
}

// A namespace whose requests never end has one served before the only one of another.
func TestAHotNamespaceDelaysAnotherByOneRequest(t *testing.T) {
	q := newQueue(t)
	for i := range 2000 {
		q.Add(of("a", i))
	}
	for i := range 100 {
		r, _ := q.Get()
		q.Add(r) // again while it is served
		q.Done(r)
		q.Add(of("b", i))
		got := served(q, 2)
		expect.Must(t, strings.Contains(got, fmt.Sprint("b", i)), "got %s", got)
	}
}

// Requests come after their time, and with a back-off, in turn too.
func TestRequestsComeAfterTheirTime(t *testing.T) {
	q := newQueue(t)
	q.AddAfter(of("a", 1), 20*time.Millisecond)
	q.AddAfter(of("a", 1), time.Millisecond) // the earlier time counts
	q.AddRateLimited(of("b", 1))
	got := strings.Fields(served(q, 2))
	if slices.Sort(got); !slices.Equal(got, []string{"a1", "b1"}) || q.NumRequeues(of("b", 1)) != 1 {
		t.Errorf("got %v", got)
	}
}

// Objects are served in the order in which they asked, one that left takes no place, and no namespace waits for another.
func TestAPaceSpacesANamespace(t *testing.T) {
	now := time.Unix(0, 0)
	p := NewPace(10, 2, func() time.Time { return now })
	for _, c := range []struct {
		at        time.Duration
		want, ask string
	}{
		{0, "a1 0s, a2 0s, a3 100ms, a4 200ms, a3 100ms, b1 0s", "a1 a2 a3 a4 a3 b1"},
		{100 * time.Millisecond, "a4 100ms, a3 0s, a3 200ms", "a4 a3" + " a3"}, // a3 was served, and asks for another time
		{200 * time.Millisecond, "a4 0s, a5 200ms, a6 300ms", "a4 a5 a6"},
		{250 * time.Millisecond, "a6 150ms", "-a3 a6"},
		{time.Second, "a6 0s, a7 0s, a8 100ms", "-a5 a6 a7 a8"},
	} {
		now = time.Unix(0, 0).Add(c.at)
		var waits []string
		for _, name := range strings.Fields(c.ask) {
			if left, leaves := strings.CutPrefix(name, "-"); leaves {
				p.Leave(types.NamespacedName{Namespace: left[:1], Name: left})
				continue
			}
			in := p.In(types.NamespacedName{Namespace: name[:1], Name: name})
			waits = append(waits, fmt.Sprint(name, " ", in.Round(time.Millisecond)))
		}
		expect.Equalf(t, c.want, strings.Join(waits, ", "), "after %s", c.at)
	}
}
