package lws

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// statefulSets refuses every StatefulSet with the error.
func statefulSets(err error) func(identity.Kind) error {
	return func(kind identity.Kind) error {
		if kind == identity.KindStatefulSet {
			return err
		}
		return nil
	}
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "statefulsets"}, "w", errors.New("exceeded quota"))
}

func invalid() error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "w", nil)
}

// tryAgain reconciles the set, and once more if a refusal is yet to be written to its status.
func (c *cluster) tryAgain() (ctrl.Result, error) {
	result, err := c.lookAtSet()
	if err == nil && result.RequeueAfter == readAgain {
		return c.lookAtSet()
	}
	return result, err
}

// checkRefused checks that the status tells of a refusal that says so.
func checkRefused(t *testing.T, c *cluster, says string) {
	t.Helper()
	got := c.condition(string(lwsv1.LeaderWorkerSetProgressing))
	if got.Reason != lws.CodeRefused || !strings.Contains(got.Message, says) {
		t.Errorf("got %+v, want it to say %q", got, says)
	}
	if observed := c.status().ObservedGeneration; observed != 0 {
		t.Errorf("generation %d is told to be acted upon", observed)
	}
}

// Under a quota that had no room for the leaders, the set's status stayed empty:
// the operator tried again and again and told nobody.
func TestAForbiddenLeaderStatefulSetIsToldOfAndTriedAgain(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
	c.api.refuse = statefulSets(forbidden())
	for i, again := range []time.Duration{lws.RetryRefusedFirst, lws.RetryRefusedFirst, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, lws.RetryRefusedAfter, lws.RetryRefusedAfter} {
		if result, err := c.tryAgain(); err != nil || result.RequeueAfter != again {
			t.Fatalf("try %d: got %+v, %v, want the next in %s", i+1, result, err, again)
		}
		checkRefused(t, c, "exceeded quota")
		if c.api.attempts != i+1 || c.api.statuses != 1 {
			t.Errorf("%d tries, %d statuses; want %d and 1", c.api.attempts, c.api.statuses, i+1)
		}
		c.wait(again)
	}
	c.api.refuse = nil
	c.live(5, "w-0")
	if got := c.status(); got.ObservedGeneration != 1 || c.condition(string(lwsv1.LeaderWorkerSetAvailable)).Type == "" {
		t.Errorf("with room for it: %+v", got)
	}
}

// A spec that the API server took for invalid was sent again many times a second,
// and a better one had to wait as long as the bad one.
func TestAnInvalidLeaderStatefulSetIsLeftAloneUntilTheSpecChangesOrTimePasses(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
	c.api.refuse = statefulSets(invalid())
	look := func(why string, attempts int, again time.Duration) {
		t.Helper()
		if result, err := c.tryAgain(); err != nil || result.RequeueAfter != again {
			t.Errorf("%s: got %+v, %v, want another look in %s", why, result, err, again)
		}
		if c.api.attempts != attempts {
			t.Errorf("%s: %d tries, want %d", why, c.api.attempts, attempts)
		}
		checkRefused(t, c, "is invalid")
	}
	look("at first", 1, lws.RetryRefusedFirst)
	look("at once", 1, lws.RetryRefusedFirst)
	c.wait(lws.RetryRefusedFirst - time.Millisecond)
	look("too early", 1, time.Millisecond)
	c.wait(time.Millisecond)
	look("in time", 2, lws.RetryRefusedFirst)
	c.wait(lws.RetryRefusedAfter)
	look("much later", 3, lws.RetryRefusedAfter)
	c.wait(time.Second)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Generation++; fakeapi.Image("image:2")(set) })
	look("another spec", 4, lws.RetryRefusedFirst)
	look("that spec again", 4, lws.RetryRefusedFirst)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Labels = map[string]string{"team": "a"} })
	look("a label that a policy may want", 5, lws.RetryRefusedFirst)
	fakeapi.Edit(c.Server, "w", fakeapi.Annotation("owner", "b"))
	look("an annotation", 6, lws.RetryRefusedFirst)
}

// A status that could not be written was taken for a spec that the API server
// refuses, and the set was left alone for five minutes.
func TestAStatusThatIsRefusedIsNoRefusedSpec(t *testing.T) {
	for name, refusal := range map[string]error{"invalid": invalid(), "forbidden": forbidden()} {
		c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
		c.api.statusError = refusal
		if result, err := c.lookAtSet(); !errors.Is(err, refusal) {
			t.Errorf("%s: no retry with a back-off, but %+v, %v", name, result, err)
		}
		c.api.statusError = nil
		c.live(5, "w-0")
		if got := c.status(); got.ObservedGeneration != 1 || c.condition(string(lwsv1.LeaderWorkerSetAvailable)).Type == "" {
			t.Errorf("%s: once it can be written: %+v", name, got)
		}
	}
}
