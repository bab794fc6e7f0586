package turn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
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
	if got := served(q, 2); got != "a0 b0" || q.Len() != 5 {
		t.Errorf("got %s, and %d wait", got, q.Len())
	}
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
		if got := served(q, 2); !strings.Contains(got, fmt.Sprint("b", i)) {
			t.Fatalf("got %s", got)
		}
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

// Each object has a slot of its own, however often it asks, and no namespace waits for another.
func TestAPaceSpacesANamespace(t *testing.T) {
	now := time.Unix(0, 0)
	p := NewPace(10, 2)
	asked := func(namespace string, objects ...string) string {
		var waits []string
		for _, object := range objects {
			waits = append(waits, fmt.Sprint(p.In(namespace, types.UID(namespace+object), now).Round(time.Millisecond)))
		}
		return strings.Join(waits, " ")
	}
	for _, c := range []struct {
		at              time.Duration
		namespace, want string
		objects         []string
	}{
		{0, "a", "0s 0s 100ms 200ms 100ms", []string{"1", "2", "3", "4", "3"}},
		{0, "b", "0s", []string{"1"}},
		{100 * time.Millisecond, "a", "100ms 0s 200ms", []string{"4", "3", "3"}}, // the slot of 3 is used, and it waits anew
		{time.Second, "a", "0s 0s 0s 0s 100ms", []string{"4", "3", "5", "6", "7"}},
	} {
		now = time.Unix(0, 0).Add(c.at)
		if got := asked(c.namespace, c.objects...); got != c.want {
			t.Errorf("after %s in %s: got %s, want %s", c.at, c.namespace, got, c.want)
		}
	}
}
