package reconcile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/reconcile"
	"lockstep.dev/lockstep/test/fakeapi"
)

func forbidden(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "w", errors.New(why))
}

func invalid() error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "w", nil)
}

// tryAgain reconciles the set, and once more if a refusal is yet to be written to its status.
func (c *cluster) tryAgain() (ctrl.Result, error) {
	result, err := c.reconcileSet()
	if err == nil && result.RequeueAfter == reconcile.ReadAgain {
		return c.reconcileSet()
	}
	return result, err
}

func TestAForbiddenLeaderStatefulSetIsReportedAndRetried(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
	c.refuse("create", identity.KindStatefulSet, "", forbidden("exceeded quota"))
	for i, again := range []time.Duration{lws.RetryRefusedFirst, lws.RetryRefusedFirst, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, lws.RetryRefusedAfter, lws.RetryRefusedAfter} {
		if result, err := c.tryAgain(); err != nil || result.RequeueAfter != again {
			t.Fatalf("try %d: got %+v, %v, want the next in %s", i+1, result, err, again)
		}
		if got := c.progressing(); got.Reason != lws.CodeRefused || !strings.Contains(got.Message, "exceeded quota") || c.status().ObservedGeneration != 1 {
			t.Errorf("got %+v", c.status())
		}
		if tries, statuses := c.asked("create", identity.KindStatefulSet, ""), len(c.Asked("status")); tries != i+1 || statuses != 1 {
			t.Errorf("%d tries, %d statuses; want %d and 1", tries, statuses, i+1)
		}
		c.wait(again)
	}
	c.Refuse = nil
	c.run(5, "w-0")
	if c.status().ObservedGeneration != 1 || !c.isAvailable() {
		t.Errorf("with room for it: %+v", c.status())
	}
}

func TestAnInvalidLeaderStatefulSetIsNotRetriedUntilTheSetChangesOrTimePasses(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
	c.refuse("create", identity.KindStatefulSet, "", invalid())
	edit := func(change func(*lwsv1.LeaderWorkerSet)) func() {
		return func() { fakeapi.Edit(c.Server, "w", change) }
	}
	for _, step := range []struct {
		name  string
		first func()
		tries int
		again time.Duration
	}{
		{"at first", func() {}, 1, lws.RetryRefusedFirst},
		{"at once", func() {}, 1, lws.RetryRefusedFirst},
		{"too early", func() { c.wait(lws.RetryRefusedFirst - time.Millisecond) }, 1, time.Millisecond},
		{"in time", func() { c.wait(time.Millisecond) }, 2, lws.RetryRefusedFirst},
		{"much later", func() { c.wait(lws.RetryRefusedAfter) }, 3, lws.RetryRefusedAfter},
		{"another spec", edit(func(set *lwsv1.LeaderWorkerSet) { set.Generation++; fakeapi.Image("image:2")(set) }), 4, lws.RetryRefusedFirst},
		{"that spec again", func() {}, 4, lws.RetryRefusedFirst},
		{"a label that a policy may want", edit(func(set *lwsv1.LeaderWorkerSet) { set.Labels = map[string]string{"team": "a"} }), 5, lws.RetryRefusedFirst},
		{"an annotation", edit(fakeapi.Annotation("owner", "b")), 6, lws.RetryRefusedFirst},
	} {
		step.first()
		if result, err := c.tryAgain(); err != nil || result.RequeueAfter != step.again {
			t.Errorf("%s: got %+v, %v, want the next in %s", step.name, result, err, step.again)
		}
		if tries := c.asked("create", identity.KindStatefulSet, ""); tries != step.tries || c.progressing().Reason != lws.CodeRefused {
			t.Errorf("%s: %d tries, %+v", step.name, tries, c.progressing())
		}
	}
}

// A refused status is no refused spec.
func TestARefusedStatusIsRetried(t *testing.T) {
	for _, refusal := range []error{invalid(), forbidden("no")} {
		c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
		c.refuse("status", identity.KindLeaderWorkerSet, "", refusal)
		if result, err := c.reconcileSet(); !errors.Is(err, refusal) {
			t.Errorf("no retry with a back-off, but %+v, %v", result, err)
		}
		c.Refuse = nil
		c.run(5, "w-0")
		if c.status().ObservedGeneration != 1 || !c.isAvailable() {
			t.Errorf("once it can be written: %+v", c.status())
		}
	}
}

// A webhook of the gang scheduler may refuse a PodGroup, as for a closed queue.
func TestARefusedPodGroupKeepsNoWorkersBack(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 2))
	c.Added = func(object client.Object) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
			gang.Tie(pod, gang.NameOf(pod))
		}
	}
	c.refuse("create", identity.KindPodGroup, "", forbidden("queue is closed"))
	c.reconcile()
	c.Sync(fakeapi.Find[*appsv1.StatefulSet](c.Server, "w"))
	if result, err := c.reconcileGroup("w-0"); err != nil || result.RequeueAfter != lws.RetryRefusedFirst || c.asked("create", identity.KindPodGroup, "") != 1 {
		t.Errorf("no retry with a back-off: %+v, %v", result, err)
	}
	if fakeapi.Find[*appsv1.StatefulSet](c.Server, "w-0") == nil {
		t.Error("the group has no workers")
	}
	c.Refuse = nil
	c.reconcile("w-0")
	if got := len(fakeapi.All[*unstructured.Unstructured](c.Objects)); got != 1 {
		t.Errorf("no longer refused: %d podgroups", got)
	}
}

// A refusal with another message each time must not cause a retry at once.
func TestARefusalWithAnotherMessageEachTimeIsRetriedInItsTime(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
	tries := 0
	c.Refuse = func(r fakeapi.Request) error {
		if r.Of.Kind != identity.KindService {
			return nil
		}
		tries++
		return forbidden(strings.Repeat("x", tries))
	}
	for i := range 4 {
		result, err := c.reconcileSet()
		if err != nil || result.RequeueAfter < lws.RetryRefusedFirst || c.woken > 0 || tries != i+1 {
			t.Fatalf("try %d of %d: got %+v, %v, woken %d times", i+1, tries, result, err, c.woken)
		}
		c.wait(result.RequeueAfter)
	}
	if got := c.progressing(); got.Reason != lws.CodeRefused {
		t.Errorf("it is not reported: %+v", got)
	}
	c.Refuse = nil
	if _, err := c.reconcileSet(); err != nil || c.woken != 1 {
		t.Errorf("its end is not reported: %v", err)
	}
}

func TestABusyAPIServerIsNoRefusal(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 2))
	c.run(2)
	busy := apierrors.NewTooManyRequests("too busy", 1)
	c.refuse("create", identity.KindStatefulSet, "w-0", busy)
	woken := c.woken
	if _, err := c.reconcileGroup("w-0"); !errors.Is(err, busy) {
		t.Errorf("got %v", err)
	}
	c.run(1)
	if got := c.progressing(); got.Reason == lws.CodeRefused || c.woken != woken {
		t.Errorf("got %+v", got)
	}
}
