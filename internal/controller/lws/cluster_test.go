package lws

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/fakeapi"
)

// fakeAPI is a fake API server that may refuse writes.
type fakeAPI struct {
	*fakeapi.Server
	// refuse, when set, may refuse to create an object; attempts counts the
	// leader StatefulSets asked for.
	refuse   func(identity.Kind) error
	attempts int
	// taboo refuses to create what bears such a name.
	taboo map[string]error
	// spared refuses to delete what bears such a name.
	spared map[string]error
	// applied holds the annotations of every apply of a StatefulSet, in order.
	applied []map[string]string
	// statusError, when set, refuses statuses; statuses counts those written.
	statusError error
	statuses    int
}

func (a *fakeAPI) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	if err := a.refused(fakeapi.KindOf(object), object.GetName()); err != nil {
		return err
	}
	return a.Server.Create(ctx, object, opts...)
}

func (a *fakeAPI) refused(kind identity.Kind, name string) error {
	if kind == identity.KindStatefulSet {
		a.attempts++
	}
	if a.refuse != nil {
		if err := a.refuse(kind); err != nil {
			return err
		}
	}
	return a.taboo[name]
}

func (a *fakeAPI) Apply(ctx context.Context, fields runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	sts, ok := fields.(*appsv1ac.StatefulSetApplyConfiguration)
	if ok && sts.UID == nil { // it creates
		if err := a.refused(identity.KindStatefulSet, *sts.Name); err != nil {
			return err
		}
	}
	creates := ok && sts.UID == nil
	err := a.Server.Apply(ctx, fields, opts...)
	if ok && !creates && err == nil {
		a.applied = append(a.applied, sts.Annotations)
	}
	return err
}

func (a *fakeAPI) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	if err := a.spared[object.GetName()]; err != nil {
		return err
	}
	return a.Server.Delete(ctx, object, opts...)
}

func (a *fakeAPI) Status() client.SubResourceWriter { return &fakeStatuses{a.Server.Status(), a} }

type fakeStatuses struct {
	client.SubResourceWriter
	api *fakeAPI
}

func (s *fakeStatuses) Update(ctx context.Context, object client.Object, opts ...client.SubResourceUpdateOption) error {
	if s.api.statusError != nil {
		return s.api.statusError
	}
	s.api.statuses++
	return s.SubResourceWriter.Update(ctx, object, opts...)
}

// cluster has the operator work against a fake API server, pass by pass.
type cluster struct {
	*fakeapi.Controllers
	t   *testing.T
	api *fakeAPI
	// slow is how far the operator's clock is behind that of the API server.
	slow time.Duration
	// woken counts how often the set was asked to look again.
	woken int
	*pass
}

func newCluster(t *testing.T, slow time.Duration, set *lwsv1.LeaderWorkerSet) *cluster {
	t.Helper()
	store := fakeapi.New()
	if err := lwscache.Index(context.Background(), store); err != nil {
		t.Fatal(err)
	}
	c := &cluster{Controllers: fakeapi.Control(store), t: t, api: &fakeAPI{Server: store}, slow: slow}
	clock := func() time.Time { return store.Now.Add(-c.slow) }
	memory := lwscache.NewMemory()
	observer := lwscache.New(store.Cached(), store.Live(), memory)
	c.pass = &pass{
		observe: observer,
		memory:  memory,
		act:     apply.New(c.api, store.Live()).Surveying(observer.Standing),
		narrate: report.New(events.NewFakeRecorder(10_000)),
		now:     clock,
		wakeSet: func(client.Object) { c.woken++ },
	}
	store.Now = store.Now.Add(time.Minute)
	fakeapi.Add(store, set)
	return c
}

// restart has another process go on, which remembers nothing.
func (c *cluster) restart() {
	memory := lwscache.NewMemory()
	c.memory, c.observe = memory, lwscache.New(c.Cached(), c.Live(), memory)
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: fakeapi.Namespace, Name: name}}
}

func (c *cluster) lookAtSet() (ctrl.Result, error) {
	return (&setReconciler{pass: c.pass}).Reconcile(context.Background(), request("w"))
}

func (c *cluster) lookAtGroup(name string) (ctrl.Result, error) {
	return (&groupReconciler{c.pass}).Reconcile(context.Background(), request(name))
}

// live has everybody act in turn, a second apart. The operator sees its own writes
// before anybody else does.
func (c *cluster) live(seconds int, groups ...string) {
	c.t.Helper()
	for range seconds {
		c.look(groups...)
		c.look(groups...)
		for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			c.Run(pod)
		}
		c.wait(time.Second)
	}
}

// look has the operator look at the set and at groups.
func (c *cluster) look(groups ...string) {
	c.t.Helper()
	if _, err := c.lookAtSet(); err != nil {
		c.t.Fatal(err)
	}
	for _, group := range groups {
		if _, err := c.lookAtGroup(group); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) wait(d time.Duration) { c.Now = c.Now.Add(d) }

func (c *cluster) status() lwsv1.LeaderWorkerSetStatus {
	return fakeapi.Find[*lwsv1.LeaderWorkerSet](c.Server, "w").Status
}

func (c *cluster) condition(conditionType string) metav1.Condition {
	for _, condition := range c.status().Conditions {
		if condition.Type == conditionType && condition.Status == metav1.ConditionTrue {
			return condition
		}
	}
	return metav1.Condition{}
}

// nudges counts the nudges written.
func (c *cluster) nudges() int {
	var n int
	for _, annotations := range c.api.applied {
		if annotations[lws.NudgeAnnotationKey] != "" {
			n++
		}
	}
	return n
}
