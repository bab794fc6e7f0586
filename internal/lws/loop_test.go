package lws_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/reconcile"
	"lockstep.dev/lockstep/internal/turn"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// The tests of internal/reconcile, and of the loop below it, are here: the loop is the operator of a cluster.

// begun is a cluster with a set, whose operator may be refused what it writes.
func begun(t *testing.T, slow time.Duration, set Set) *cluster {
	t.Helper()
	c := newCluster(t)
	c.writer, c.slow, c.cached.Trim = func(w reconcile.Writer) reconcile.Writer { return w }, slow, nil
	c.pass(time.Minute)
	fakeapi.Add(c.Server, set)
	return c
}

func (c *cluster) trySet() (ctrl.Result, error) {
	_, result, err := c.loop.Set(ctx, request("w"))
	return result, err
}

func (c *cluster) tryGroup(name string) (ctrl.Result, error) { return c.loop.Group(ctx, request(name)) }

// reconcile reconciles the set and groups.
func (c *cluster) reconcile(groups ...string) {
	c.t.Helper()
	c.reconcileSet()
	for _, group := range groups {
		c.reconcileGroup(group)
	}
}

// run runs all controllers in turn, a second apart. The operator sees its own writes before the
// others do.
func (c *cluster) run(seconds int, groups ...string) {
	c.t.Helper()
	for range seconds {
		c.reconcile(groups...)
		c.reconcile(groups...)
		c.sync()
		for _, pod := range fakeapi.All[Pod](c.Objects) {
			c.Run(pod)
		}
		c.pass(time.Second)
	}
}

// refuse refuses writes of a verb to a kind, and to a name if it is not empty. Others succeed.
func (c *cluster) refuse(verb string, kind identity.Kind, name string, err error) {
	c.Refuse = func(r fakeapi.Request) error {
		if r.Verb == verb && r.Of.Kind == kind && (name == "" || name == r.Of.Name) {
			return err
		}
		return nil
	}
}

// asked counts the writes of a verb to a kind, with a text in their body.
func (c *cluster) asked(verb string, kind identity.Kind, text string) (n int) {
	for _, r := range c.Asked(verb) {
		if r.Of.Kind == kind && strings.Contains(r.Body, text) {
			n++
		}
	}
	return n
}

func (c *cluster) isAvailable() bool {
	return condition(c.status(), available).Status == metav1.ConditionTrue
}

func invalid() error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "w", nil)
}

// tryAgain reconciles the set, and once more if a refusal is yet to be written to its status.
func (c *cluster) tryAgain() (ctrl.Result, error) {
	result, err := c.trySet()
	if err == nil && result == reconcile.ReadAgain {
		return c.trySet()
	}
	return result, err
}

func TestAForbiddenLeaderStatefulSetIsReportedAndRetried(t *testing.T) {
	c := begun(t, 0, fakeapi.Set("w", 1, 1))
	c.refuse("create", identity.KindStatefulSet, "", forbidden("exceeded quota"))
	for i, again := range []time.Duration{action.RetryRefusedFirst, action.RetryRefusedFirst, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, action.RetryRefusedAfter, action.RetryRefusedAfter} {
		if result, err := c.tryAgain(); err != nil || result.RequeueAfter != again {
			t.Fatalf("try %d: got %+v, %v, want the next in %s", i+1, result, err, again)
		}
		if got := condition(c.status(), progressing); got.Reason != lws.CodeRefused || !strings.Contains(got.Message, "exceeded quota") || c.status().ObservedGeneration != 1 {
			t.Errorf("got %+v", c.status())
		}
		tries, statuses := c.asked("create", identity.KindStatefulSet, ""), len(c.Asked("status"))
		expect.That(t, tries == i+1 && statuses == 1, "%d tries, %d statuses; want %d and 1", tries, statuses, i+1)
		c.pass(again)
	}
	c.Refuse = nil
	c.run(5, "w-0")
	expect.That(t, c.status().ObservedGeneration == 1 && c.isAvailable(), "with room for it: %+v", c.status())
}

func TestAnInvalidLeaderStatefulSetIsNotRetriedUntilTheSetChangesOrTimePasses(t *testing.T) {
	c := begun(t, 0, fakeapi.Set("w", 1, 1))
	c.refuse("create", identity.KindStatefulSet, "", invalid())
	edit := func(change edit) func() {
		return func() { fakeapi.Edit(c.Server, "w", change) }
	}
	for _, step := range []struct {
		name  string
		first func()
		tries int
		again time.Duration
	}{
		{"at first", func() {}, 1, action.RetryRefusedFirst},
		{"at once", func() {}, 1, action.RetryRefusedFirst},
		{"too early", func() { c.pass(action.RetryRefusedFirst - time.Millisecond) }, 1, time.Millisecond},
		{"in time", func() { c.pass(time.Millisecond) }, 2, action.RetryRefusedFirst},
		{"much later", func() { c.pass(action.RetryRefusedAfter) }, 3, action.RetryRefusedAfter},
		{"another spec", edit(func(set Set) { set.Generation++; fakeapi.Image("image:2")(set) }), 4, action.RetryRefusedFirst},
		{"that spec again", func() {}, 4, action.RetryRefusedFirst},
		{"a label that a policy may want", edit(func(set Set) { set.Labels = map[string]string{"team": "a"} }), 5, action.RetryRefusedFirst},
		{"an annotation", edit(fakeapi.Annotation("owner", "b")), 6, action.RetryRefusedFirst},
	} {
		step.first()
		if result, err := c.tryAgain(); err != nil || result.RequeueAfter != step.again {
			t.Errorf("%s: got %+v, %v, want the next in %s", step.name, result, err, step.again)
		}
		if tries := c.asked("create", identity.KindStatefulSet, ""); tries != step.tries || condition(c.status(), progressing).Reason != lws.CodeRefused {
			t.Errorf("%s: %d tries, %+v", step.name, tries, condition(c.status(), progressing))
		}
	}
}

// A refused status is no refused spec.
func TestARefusedStatusIsRetried(t *testing.T) {
	for _, refusal := range []error{invalid(), forbidden("no")} {
		c := begun(t, 0, fakeapi.Set("w", 1, 1))
		c.refuse("status", identity.KindLeaderWorkerSet, "", refusal)
		result, err := c.trySet()
		expect.That(t, errors.Is(err, refusal), "no retry with a back-off, but %+v, %v", result, err)
		c.Refuse = nil
		c.run(5, "w-0")
		expect.That(t, c.status().ObservedGeneration == 1 && c.isAvailable(), "once it can be written: %+v", c.status())
	}
}

// A webhook of the gang scheduler may refuse a PodGroup, as for a closed queue.
func TestARefusedPodGroupKeepsNoWorkersBack(t *testing.T) {
	c := begun(t, 0, fakeapi.Set("w", 1, 2))
	c.Added = func(object client.Object) {
		if pod, ok := object.(Pod); ok && pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
			gang.Tie(&pod.ObjectMeta, gang.NameOf(pod))
		}
	}
	c.refuse("create", identity.KindPodGroup, "", forbidden("queue is closed"))
	c.reconcile()
	c.Sync(fakeapi.Find[StatefulSet](c.Server, "w"))
	if result, err := c.tryGroup("w-0"); err != nil || result.RequeueAfter != action.RetryRefusedFirst || c.asked("create", identity.KindPodGroup, "") != 1 {
		t.Errorf("no retry with a back-off: %+v, %v", result, err)
	}
	expect.That(t, fakeapi.Find[StatefulSet](c.Server, "w-0") != nil, "the group has no workers")
	c.Refuse = nil
	c.reconcile("w-0")
	expect.Equalf(t, 1, len(fakeapi.All[*unstructured.Unstructured](c.Objects)), "no longer refused: podgroups")
}

// A refusal with another message each time must not cause a retry at once.
func TestARefusalWithAnotherMessageEachTimeIsRetriedInItsTime(t *testing.T) {
	c := begun(t, 0, fakeapi.Set("w", 1, 1))
	tries := 0
	c.Refuse = func(r fakeapi.Request) error {
		if r.Of.Kind != identity.KindService {
			return nil
		}
		tries++
		return forbidden(strings.Repeat("x", tries))
	}
	for i := range 4 {
		result, err := c.trySet()
		expect.Must(t, err == nil && result.RequeueAfter >= action.RetryRefusedFirst && c.woken == 0 && tries == i+1,
			"try %d of %d: got %+v, %v, woken %d times", i+1, tries, result, err, c.woken)
		c.pass(result.RequeueAfter)
	}
	got := condition(c.status(), progressing)
	expect.That(t, got.Reason == lws.CodeRefused, "it is not reported: %+v", got)
	c.Refuse = nil
	_, err := c.trySet()
	expect.That(t, err == nil && c.woken == 1, "its end is not reported: %v", err)
}

func TestABusyAPIServerIsNoRefusal(t *testing.T) {
	c := begun(t, 0, fakeapi.Set("w", 1, 2))
	c.run(2)
	busy := apierrors.NewTooManyRequests("too busy", 1)
	c.refuse("create", identity.KindStatefulSet, "w-0", busy)
	woken := c.woken
	_, err := c.tryGroup("w-0")
	expect.That(t, errors.Is(err, busy), "got %v", err)
	c.run(1)
	got := condition(c.status(), progressing)
	expect.That(t, got.Reason != lws.CodeRefused && c.woken == woken, "got %+v", got)
}

// recreatedSet is a set that was deleted, waited for its previous leaders, and runs again.
func recreatedSet(t *testing.T, slow time.Duration) *cluster {
	t.Helper()
	c := begun(t, slow, fakeapi.Set("w", 2, 2))
	c.run(5, "w-0", "w-1")
	fakeapi.Drop[Set](c.Server, "w")
	fakeapi.Add(c.Server, fakeapi.Set("w", 2, 2))
	c.run(2, "w-0", "w-1")
	if got := condition(c.status(), progressing); got.Reason != lws.CodePreviousIncarnation {
		t.Fatalf("the set does not wait for the previous incarnation: %+v", got)
	}
	for name, object := range c.Objects {
		if fakeapi.KindOf(object) != identity.KindLeaderWorkerSet {
			delete(c.Objects, name)
		}
	}
	c.Requests = nil
	c.run(10, "w-0", "w-1")
	expect.Must(t, c.isAvailable(), "the next incarnation is not available: %+v", c.status())
	return c
}

func (c *cluster) touches() int {
	return c.asked("apply", identity.KindStatefulSet, lws.NudgeAnnotationKey)
}

// When a foreign pod with a leader's name goes, the StatefulSet is touched once, whatever the
// operator's clock says. A recreated set is not touched.
func TestAForeignPodThatGoesTouchesTheStatefulSetOnce(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Hour} {
		c := recreatedSet(t, slow)
		expect.Equalf(t, 0, c.touches(), "%s behind: touches after a recreate", slow)
		occupied("w-1")(c)
		c.run(20, "w-0", "w-1")
		if got := condition(c.status(), lws.CodeNameConflict); got.Status != metav1.ConditionTrue || !strings.Contains(got.Message, "pod w-1 ") || !strings.Contains(got.Message, "pod stranger") || c.touches() != 0 {
			t.Errorf("%s behind: %d touches, condition %+v", slow, c.touches(), got)
		}
		fakeapi.Drop[Pod](c.Server, "w-1")
		c.run(20, "w-0", "w-1")
		expect.That(t, c.touches() == 1 && c.isAvailable(), "%s behind: %d touches, %+v", slow, c.touches(), c.status())
	}
}

func restarting(size int32) Set {
	return fakeapi.Set("w", 1, size, onRestart)
}

func (c *cluster) leader() Pod { return fakeapi.Find[Pod](c.Server, "w-0") }

func isDeleted(pod Pod) bool { return pod == nil || pod.DeletionTimestamp != nil }

// Two operators may delete one leader; users hear of one restart.
func TestADeleteOfWhatIsGoneIsNotReported(t *testing.T) {
	c := begun(t, 0, fakeapi.Set("w", 1, 1))
	c.events = events.NewFakeRecorder(9)
	c.awake()
	gone := action.Delete{
		Object: fakeapi.Former(identity.KindPod, "w-0"),
		Tell:   action.Telling{Done: []action.Event{{Reason: "RecreateGroup", Action: "Delete", Note: "gone"}}},
	}
	set := fakeapi.Find[Set](c.Server, "w")
	expect.Value(c.loop.CarryOut(t.Context(), reconcile.Request{Object: set}, action.Plan{Actions: []action.Action{gone}}))(t)
	if len(c.events.Events) != 0 {
		t.Errorf("reported %q", <-c.events.Events)
	}
}

// A cache may be seconds late to show a deletion. The leader is not deleted again until it does.
func TestALeaderIsDeletedOnceHoweverLateTheCacheIs(t *testing.T) {
	c := begun(t, 0, restarting(1))
	c.run(20, "w-0")
	on("w-0", crash)(c)
	c.reconcile("w-0")
	expect.Must(t, isDeleted(c.leader()), "the leader was not deleted")
	late := func(pod Pod) { pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil }
	fakeapi.Edit(c.Server, "w-0", late)
	if result, err := c.tryGroup("w-0"); err != nil || result.RequeueAfter != 0 || isDeleted(c.leader()) {
		t.Errorf("deleted again, or read again after %v: %v", result.RequeueAfter, err)
	}
	c.pass(time.Hour) // not the cache, but the API server shows an older state
	c.reconcile("w-0")
	expect.That(t, isDeleted(c.leader()), "the leader that exists again was not deleted")
}

// Groups of a namespace that fail together are recreated at the pace of the namespace. That a group failed, and that a
// drain did it, is written at once: its pods may be gone before it is its turn.
func TestFailedGroupsAreRecreatedAtAPace(t *testing.T) {
	c := begun(t, 0, fakeapi.Set("w", 2, 2, onRestart))
	c.run(20, "w-0", "w-1")
	c.loop.Failures = turn.NewPace(1, 1, c.loop.Now)
	for _, worker := range []string{"w-0-1", "w-1-1"} {
		then(on(worker, disrupted), leaving[Pod](worker))(c)
	}
	c.reconcile("w-0", "w-1")
	second := func() Pod { return fakeapi.Find[Pod](c.Server, "w-1") }
	fakeapi.Drop[Pod](c.Server, "w-1-1")
	result, err := c.tryGroup("w-1")
	expect.That(t, err == nil && isDeleted(c.leader()) && !isDeleted(second()) && result.RequeueAfter == time.Second,
		"the second group waits for %s: %v", result.RequeueAfter, err)
	c.pass(time.Second)
	c.reconcile("w-1")
	if decision := restart.Of(fakeapi.Find[Set](c.Server, "w"), second()); !isDeleted(second()) || !decision.Disrupted {
		t.Errorf("the second group was not recreated for a drain: %+v", decision)
	}
}

// Workers that lost their StatefulSet and their owner are deleted before their leader: the next
// leader's StatefulSet would adopt them. A worker that must not be deleted keeps the leader.
func TestALeaderStaysUntilTheWorkersWithoutOwnerAreDeleted(t *testing.T) {
	c := begun(t, 0, restarting(3))
	c.run(20, "w-0")
	leader := c.leader().UID
	fakeapi.Drop[StatefulSet](c.Server, "w-0")
	for _, worker := range []string{"w-0-1", "w-0-2"} {
		fakeapi.Edit(c.Server, worker, func(pod Pod) { pod.OwnerReferences = nil })
	}
	c.refuse("delete", identity.KindPod, "w-0-1", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "w-0-1", errors.New("a policy denied the request")))
	for range 3 {
		_, _ = c.tryGroup("w-0") // reports the refusal
	}
	now := c.leader()
	expect.That(t, !isDeleted(now) && now.UID == leader, "the leader is deleted before a worker")
	expect.That(t, isDeleted(fakeapi.Find[Pod](c.Server, "w-0-2")), "a worker waits for another one")
	c.Refuse = nil
	c.run(20, "w-0")
	if now := c.leader(); now == nil || now.UID == leader {
		t.Error("once nothing is refused, the group is not recreated")
	}
}

// A process that never saw the set ends its group, tries again what is refused, and then leaves the
// rest to the garbage collector.
func TestAGroupEndsWithoutItsSet(t *testing.T) {
	c := begun(t, 0, fakeapi.Set("w", 1, 3, fakeapi.Parallel))
	c.run(10, "w-0")
	fakeapi.Drop[Set](c.Server, "w")
	c.awake()
	if _, err := c.tryGroup("w-0"); err != nil || fakeapi.Find[StatefulSet](c.Server, "w-0") == nil {
		t.Fatalf("the leader does not terminate: %v", err)
	}
	fakeapi.Terminate[Pod](c.Server, "w-0", "example.com/held")
	c.refuse("delete", identity.KindPod, "w-0-2", errors.New("not now"))
	_, err := c.tryGroup("w-0")
	expect.That(t, err != nil, "the refusal is not tried again")
	c.Refuse = nil
	expect.That(t, fakeapi.Find[StatefulSet](c.Server, "w-0") == nil, "the StatefulSet is there")
	for name, ends := range map[string]bool{"w-0-1": true, "w-0-2": false} {
		pod := fakeapi.Find[Pod](c.Server, name)
		expect.That(t, (pod == nil || pod.DeletionTimestamp != nil) == ends, "pod %s ends: %t", name, !ends)
	}
	if result, err := c.tryGroup("w-0"); err != nil || !result.IsZero() {
		t.Errorf("the rest is the garbage collector's: %v, %v", result, err)
	}
}
