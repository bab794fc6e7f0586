package reconcile_test

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/reconcile"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// cluster is the operator and a fake API server, reconcile by reconcile. Its set is called w.
type cluster struct {
	*fakeapi.Controllers
	t *testing.T
	// slow is how far the operator's clock is behind that of the API server.
	slow time.Duration
	// woken counts how often the set was woken.
	woken  int
	events *events.FakeRecorder
	loop   *reconcile.Loop
}

func newCluster(t *testing.T, slow time.Duration, set *lwsv1.LeaderWorkerSet) *cluster {
	t.Helper()
	store := fakeapi.New()
	expect.OK(t, lwscache.Index(context.Background(), store))
	c := &cluster{Controllers: fakeapi.Control(store), t: t, slow: slow, events: events.NewFakeRecorder(10_000)}
	actor := apply.New(store, store.Live()).Surveying(lwscache.New(store, store.Live(), lwscache.NewMemory()).Standing)
	c.loop = &reconcile.Loop{
		Writer:   func() reconcile.Writer { return actor.ForReconcile() },
		Together: apply.AtOnce,
		Report:   report.New(c.events),
		Now:      func() time.Time { return store.Now.Add(-c.slow) },
		WakeSet:  func(client.Object) { c.woken++ },
	}
	c.restart()
	store.Now = store.Now.Add(time.Minute)
	fakeapi.Add(store, set)
	return c
}

// restart replaces the process by one that remembers nothing.
func (c *cluster) restart() {
	memory := lwscache.NewMemory()
	c.loop.Memory, c.loop.Observer = memory, lwscache.New(c.Cached(), c.Live(), memory)
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: fakeapi.Namespace, Name: name}}
}

func (c *cluster) reconcileSet() (ctrl.Result, error) {
	_, result, err := c.loop.Set(context.Background(), request("w"))
	return result, err
}

func (c *cluster) reconcileGroup(name string) (ctrl.Result, error) {
	return c.loop.Group(context.Background(), request(name))
}

// run runs all controllers in turn, a second apart. The operator sees its own writes before the
// others do.
func (c *cluster) run(seconds int, groups ...string) {
	c.t.Helper()
	for range seconds {
		c.reconcile(groups...)
		c.reconcile(groups...)
		for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			c.Run(pod)
		}
		c.wait(time.Second)
	}
}

// reconcile reconciles the set and groups.
func (c *cluster) reconcile(groups ...string) {
	c.t.Helper()
	expect.Value(c.reconcileSet())(c.t)
	for _, group := range groups {
		expect.Value(c.reconcileGroup(group))(c.t)
	}
}

func (c *cluster) wait(d time.Duration) { c.Now = c.Now.Add(d) }

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

func (c *cluster) status() lwsv1.LeaderWorkerSetStatus {
	return fakeapi.Find[*lwsv1.LeaderWorkerSet](c.Server, "w").Status
}

// condition returns a condition, or none.
func (c *cluster) condition(kind lwsv1.LeaderWorkerSetConditionType) metav1.Condition {
	for _, condition := range c.status().Conditions {
		if condition.Type == string(kind) {
			return condition
		}
	}
	return metav1.Condition{}
}

func (c *cluster) isAvailable() bool {
	return c.condition(lwsv1.LeaderWorkerSetAvailable).Status == metav1.ConditionTrue
}

func (c *cluster) progressing() metav1.Condition {
	return c.condition(lwsv1.LeaderWorkerSetProgressing)
}

// crash makes a container of the leader restart.
func (c *cluster) crash() {
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "w", RestartCount: 1}}
	})
}

var nameConflict = lwsv1.LeaderWorkerSetConditionType(lws.CodeNameConflict)
