package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/lwstest"
)

// fakeAPI is a client of a fake API server that may refuse writes, and that may
// change StatefulSets on their way in.
type fakeAPI struct {
	client.Client
	store *lwstest.FakeStore
	// refuse, when set, may refuse to create an object; attempts counts the
	// leader StatefulSets asked for.
	refuse   func(identity.Kind) error
	attempts int
	// taboo refuses to create what bears such a name.
	taboo map[string]error
	// spared refuses to delete what bears such a name.
	spared map[string]error
	// mutate, when set, is a webhook.
	mutate func(*appsv1.StatefulSet)
	// applied holds the annotations of every apply of a StatefulSet, in order.
	applied []map[string]string
	// statusError, when set, refuses statuses; statuses counts those written.
	statusError error
	statuses    int
}

func (a *fakeAPI) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	kind := lwstest.KindOf(object)
	if kind == identity.KindStatefulSet {
		a.attempts++
	}
	if a.refuse != nil {
		if err := a.refuse(kind); err != nil {
			return err
		}
	}
	if err := a.taboo[object.GetName()]; err != nil {
		return err
	}
	if a.store.Objects[lwstest.NameOf(object)] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: string(kind)}, object.GetName())
	}
	if sts, ok := object.(*appsv1.StatefulSet); ok && a.mutate != nil {
		a.mutate(sts)
	}
	added := lwstest.Add(a.store, object)
	object.SetUID(added.GetUID())
	object.SetGeneration(added.GetGeneration())
	return nil
}

// Apply merges the fields into the StatefulSet, and answers with its generation.
func (a *fakeAPI) Apply(_ context.Context, fields runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	patch, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	var wanted appsv1.StatefulSet
	if err := json.Unmarshal(patch, &wanted); err != nil || wanted.Kind != string(identity.KindStatefulSet) {
		return fmt.Errorf("the fake applies StatefulSets only: %s, %w", patch, err)
	}
	if wanted.UID == "" {
		return a.createApplied(&wanted, fields)
	}
	found := lwstest.Find[*appsv1.StatefulSet](a.store, wanted.Name)
	if found == nil || found.UID != wanted.UID || found.ResourceVersion != wanted.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "statefulsets"}, wanted.Name, nil)
	}
	current, err := json.Marshal(found)
	if err != nil {
		return err
	}
	merged, err := jsonpatch.MergePatch(current, patch)
	if err != nil {
		return err
	}
	after := &appsv1.StatefulSet{}
	if err := json.Unmarshal(merged, after); err != nil {
		return err
	}
	if a.mutate != nil {
		a.mutate(after)
	}
	if !equality.Semantic.DeepEqual(found.Spec, after.Spec) {
		after.Generation++
	}
	a.store.Put(after)
	a.applied = append(a.applied, wanted.Annotations)
	return json.Unmarshal(fmt.Appendf(nil, `{"metadata":{"generation":%d}}`, after.Generation), fields)
}

// createApplied is an apply that names no UID and a version that no object has.
func (a *fakeAPI) createApplied(wanted *appsv1.StatefulSet, fields runtime.ApplyConfiguration) error {
	if wanted.ResourceVersion != "1" {
		return fmt.Errorf("an apply of %s that may create or change it", wanted.Name)
	}
	wanted.ResourceVersion = ""
	err := a.Create(context.Background(), wanted)
	if apierrors.IsAlreadyExists(err) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "statefulsets"}, wanted.Name, nil)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(fmt.Appendf(nil, `{"metadata":{"uid":%q,"generation":%d}}`, wanted.UID, wanted.Generation), fields)
}

func (a *fakeAPI) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	found := a.store.Objects[lwstest.NameOf(object)]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, object.GetName())
	}
	if err := a.spared[object.GetName()]; err != nil {
		return err
	}
	a.store.Remove(found, metav1.DeletePropagationBackground)
	return nil
}

func (a *fakeAPI) Status() client.SubResourceWriter { return &fakeStatuses{api: a} }

type fakeStatuses struct {
	client.SubResourceWriter
	api *fakeAPI
}

func (s *fakeStatuses) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	if s.api.statusError != nil {
		return s.api.statusError
	}
	s.api.statuses++
	written, _ := object.(*lwsv1.LeaderWorkerSet)
	lwstest.Edit(s.api.store, object.GetName(), func(set *lwsv1.LeaderWorkerSet) { set.Status = written.Status })
	return nil
}

// cluster has the operator work against a fake API server, pass by pass.
type cluster struct {
	*lwstest.FakeControllers
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
	store := lwstest.NewStore()
	if err := lwscache.Index(context.Background(), store); err != nil {
		t.Fatal(err)
	}
	c := &cluster{FakeControllers: lwstest.Control(store), t: t, api: &fakeAPI{store: store}, slow: slow}
	clock := func() time.Time { return store.Now.Add(-c.slow) }
	memory := lwscache.NewMemory(clock())
	c.pass = &pass{
		observe: lwscache.New(store.Cached(), store.Live(), memory),
		memory:  memory,
		act:     apply.New(c.api, store.Live()),
		narrate: report.New(events.NewFakeRecorder(10_000)),
		now:     clock,
		wakeSet: func(client.Object) { c.woken++ },

		wakeGroup: func(client.Object) {},
	}
	store.Now = store.Now.Add(time.Minute)
	lwstest.Add(store, set)
	return c
}

// restart has another process go on, which remembers nothing.
func (c *cluster) restart() {
	memory := lwscache.NewMemory(c.now())
	c.memory, c.observe = memory, lwscache.New(c.Cached(), c.Live(), memory)
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: lwstest.Namespace, Name: name}}
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
		for _, sts := range lwstest.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
		for _, pod := range lwstest.All[*corev1.Pod](c.Objects) {
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
	return lwstest.Find[*lwsv1.LeaderWorkerSet](c.FakeStore, "w").Status
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
