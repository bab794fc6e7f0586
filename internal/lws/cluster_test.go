package lws_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/reconcile"
	reconcilelws "lockstep.dev/lockstep/internal/reconcile/lws"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/turn"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// fatal is what both a test and a property check offer.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// cluster is a fake API server on which the loop of the operator decides and carries out plans. Time
// stands still but for what a test adds.
type cluster struct {
	*fakeapi.Controllers
	t        fatal
	cached   *fakeapi.Reader
	memory   *lwscache.Memory
	observer *lwscache.Observer
	actor    *apply.Actor
	loop     *reconcilelws.Loop
	// writer returns what writes in one reconcile of the operator: mustWrite, where a test sets nothing else.
	writer func(reconcile.Writer) reconcile.Writer
	// scheduler places sets with spec.scheduling, or is empty.
	scheduler string
	events    *events.FakeRecorder
	// budgets returns what reads PodDisruptionBudgets: nothing, as long as no set wants one.
	budgets func(context.Context, bool) (client.Reader, error)
	// slow is how far the operator's clock is behind that of the API server.
	slow time.Duration
	// woken counts how often the set was woken.
	woken int
}

func newCluster(t fatal) *cluster {
	store := fakeapi.New()
	if err := lwscache.Index(context.Background(), store); err != nil {
		t.Fatalf("index: %v", err)
	}
	c := &cluster{Controllers: fakeapi.Control(store), t: t, cached: store.Cached(), events: &events.FakeRecorder{}}
	c.budgets = func(context.Context, bool) (client.Reader, error) { return nil, nil }
	c.writer = func(w reconcile.Writer) reconcile.Writer { return mustWrite{t, w} }
	c.Added, c.cached.Trim = c.tieLeader, trim
	c.awake()
	return c
}

// trim drops what the operator's cache drops.
func trim(object client.Object) {
	for of, options := range lwscache.CacheOptions().ByObject {
		if reflect.TypeOf(of) == reflect.TypeOf(object) && options.Transform != nil {
			_, _ = options.Transform(object)
		}
	}
}

// awake starts the operator anew: it remembers nothing.
func (c *cluster) awake() {
	c.memory = lwscache.NewMemory()
	c.observer = lwscache.New(c.cached, c.Live(), c.memory)
	c.observer.Scheduler, c.observer.Budgets.Reader = c.scheduler, c.budgets
	c.actor = apply.New(c.Server, c.Live())
	c.loop = &reconcilelws.Loop{
		Executor: reconcile.Executor{
			Memory:   c.memory.Memory,
			Writer:   func() reconcile.Writer { return c.writer(c.actor.ForReconcile()) },
			Together: inTurn,
			Report:   report.New(c.events),
			Now:      func() time.Time { return c.Now.Add(-c.slow) },
			Wake:     func(client.Object) { c.woken++ },
		},
		Observer: c.observer,
		Failures: turn.NewPace(1000, 1000, time.Now),
	}
}

// inTurn makes a run of writes repeatable: none is under way beside another.
func inTurn(n int, do func(int)) {
	for i := range n {
		do(i)
	}
}

// mustWrite is a writer whose every precondition must hold.
type mustWrite struct {
	t fatal
	reconcile.Writer
}

func (w mustWrite) Do(ctx context.Context, a action.Action) (string, error) {
	version, err := w.Writer.Do(ctx, a)
	if err != nil {
		w.t.Helper()
		w.t.Fatalf("%s %s: %v", a.About().Verb, a.Target(), err)
	}
	return version, err
}

// tieLeader ties the new leaders of a set that asks for gangs to Volcano, as the pod webhook
// does. Workers are tied by their template. It puts pods of a Workload into their PodGroups, and protects PodGroups.
func (c *cluster) tieLeader(object client.Object) {
	pod, isPod := object.(Pod)
	if object.GetObjectKind().GroupVersionKind() == gang.NativePodGroupKind {
		object.SetFinalizers(append(object.GetFinalizers(), inUse))
	}
	if isPod && gang.IsHanded(pod) {
		gang.Join(pod, fmt.Sprintf("%05d", len(c.Objects)))
		return
	}
	set := fakeapi.Find[Set](c.Server, "w")
	if isPod && set != nil && pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" && gang.IsWanted(set, false) {
		gang.Tie(&pod.ObjectMeta, gang.NameOf(pod))
	}
}

// inUse is the finalizer of PodGroups: each stays until no pod is in it.
const inUse = "scheduling.k8s.io/podgroup-protection"

// unprotect lets terminating PodGroups go that no pod is in.
func (c *cluster) unprotect() {
	used := gang.InUse(fakeapi.All[Pod](c.Objects))
	for name := range nativeGroups(c) {
		if object := find[PodGroup](c, name); object.GetDeletionTimestamp() != nil && !used[name] {
			c.Release(object, inUse)
		}
	}
}

func (c *cluster) pass(d time.Duration) { c.Now = c.Now.Add(d) }

// ctx is that of every look.
var ctx = context.Background()

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: fakeapi.Namespace, Name: name}
}

func request(name string) ctrl.Request { return ctrl.Request{NamespacedName: key(name)} }

// setPlan reads the set called w and decides about it, as the operator does.
func setPlan(o *lwscache.Observer, now time.Time) (lws.SetSnapshot, lws.Plan, error) {
	w, err := o.Set(ctx, key("w"), now)
	if err != nil {
		return w, lws.Plan{}, err
	}
	plan, err := reconcilelws.PlanSet(ctx, o, &w)
	return w, plan, err
}

// groupPlan is the same for a group.
func groupPlan(o *lwscache.Observer, name string, now time.Time) (lws.GroupSnapshot, lws.Plan, error) {
	w, err := o.Group(ctx, key(name), now)
	if err != nil {
		return w, lws.Plan{}, err
	}
	plan, err := reconcilelws.PlanGroup(ctx, o, &w)
	return w, plan, err
}

func (c *cluster) set() lws.SetSnapshot {
	c.t.Helper()
	w, _, err := setPlan(c.observer, c.Now)
	if err != nil {
		c.t.Fatalf("read set: %v", err)
	}
	return w
}

// decide is what a set called w, and each group that it could have, asks for.
func (c *cluster) decideSet() lws.Plan { c.t.Helper(); return lwsset.Decide(c.set()) }
func (c *cluster) decideGroup(name string) lws.Plan {
	c.t.Helper()
	_, plan := c.groupPlan(name)
	return plan
}

func (c *cluster) groupPlan(name string) (lws.GroupSnapshot, lws.Plan) {
	c.t.Helper()
	w, plan, err := groupPlan(c.observer, name, c.Now)
	if err != nil {
		c.t.Fatalf("read group %q: %v", name, err)
	}
	return w, plan
}

func (c *cluster) status() lwsv1.LeaderWorkerSetStatus {
	return find[*lwsv1.LeaderWorkerSet](c, "w").Status
}

// reconcileSet and reconcileGroup are one reconcile of the operator.
func (c *cluster) reconcileSet() {
	c.t.Helper()
	if _, _, err := c.loop.Set(ctx, request("w")); err != nil {
		c.t.Fatalf("set: %v", err)
	}
}

func (c *cluster) reconcileGroup(name string) {
	c.t.Helper()
	if _, err := c.loop.Group(ctx, request(name)); err != nil {
		c.t.Fatalf("group %q: %v", name, err)
	}
}

// do carries out a plan that a test has judged.
func (c *cluster) do(plan lws.Plan) {
	c.t.Helper()
	expect.Value(c.loop.CarryOut(ctx, reconcile.Request{Object: find[Set](c, "w")}, plan.Plan))(c.t)
}

// settle has every controller act in turn until three turns change nothing.
func (c *cluster) settle() {
	c.t.Helper()
	turn := func() {
		c.reconcileSet()
		c.turn()
	}
	if !c.still(3, 200, turn) {
		c.t.Fatalf("the cluster never settles")
	}
}

// still makes turns, so many at most, until some in a row change nothing.
func (c *cluster) still(inARow, most int, turn func()) bool {
	for still, turns := 0, 0; still < inARow; turns++ {
		if turns > most {
			return false
		}
		before := c.version()
		if turn(); maps.Equal(c.version(), before) {
			still++
		} else {
			still = 0
		}
	}
	return true
}

// turn lets the groups and all other controllers act once.
func (c *cluster) turn() {
	c.t.Helper()
	for name := range c.leaders() {
		c.reconcileGroup(name)
	}
	c.others()
	c.pass(3 * time.Second)
}

// leaders are the UIDs of all leaders by their names.
func (c *cluster) leaders() map[string]types.UID {
	leaders := map[string]types.UID{}
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		if set, _ := identity.ParentAndOrdinal(pod.Name); set == "w" {
			leaders[pod.Name] = pod.UID
		}
	}
	return leaders
}

// recreated settles the cluster and returns the leaders that are others then.
func (c *cluster) recreated() []string {
	c.t.Helper()
	before, others := c.leaders(), []string{}
	c.settle()
	for name, uid := range c.leaders() {
		if uid != before[name] {
			others = append(others, name)
		}
	}
	return others
}

// others lets all but the operator act once.
func (c *cluster) others() {
	c.sync()
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		if !c.waitsForGang(pod) {
			c.Run(pod)
		}
	}
	c.collect()
}

// waitsForGang reports whether Kubernetes' own scheduler holds a pod back: its PodGroup is missing, terminates, or waits
// for more pods than there are.
func (c *cluster) waitsForGang(pod Pod) bool {
	group := pod.Spec.SchedulingGroup
	if group == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodRunning {
		return false
	}
	count, exists := nativeGroups(c)[*group.PodGroupName]
	for _, other := range fakeapi.All[Pod](c.Objects) {
		if other.Spec.SchedulingGroup != nil && *other.Spec.SchedulingGroup.PodGroupName == *group.PodGroupName {
			count--
		}
	}
	return !exists || count > 0 || find[PodGroup](c, *group.PodGroupName).GetDeletionTimestamp() != nil
}

func (c *cluster) sync() {
	for _, sts := range fakeapi.All[StatefulSet](c.Objects) {
		c.Sync(sts)
	}
}

func (c *cluster) collect() {
	c.Protect()
	c.unprotect()
	for _, object := range fakeapi.All[client.Object](c.Objects) {
		if standing := c.Objects[fakeapi.NameOf(object)]; standing != nil {
			c.Collect(standing)
		}
	}
}

type versions map[fakeapi.Name]string

// version changes with every write but the touch of a StatefulSet, which lacks pods and is touched
// every five minutes for as long as it does.
func (c *cluster) version() versions {
	now := versions{}
	for name, object := range c.Objects {
		now[name] = object.GetResourceVersion()
		if sts, is := object.(StatefulSet); is && sts.Annotations[lws.NudgeAnnotationKey] != "" {
			now[name] = fmt.Sprint(sts.Generation, sts.Status)
		}
	}
	return now
}

func find[T interface {
	metav1.Object
	comparable
}](c *cluster, name string) T {
	c.t.Helper()
	var none T
	for n, object := range c.Objects {
		if found, ok := object.(T); ok && n.Name == name {
			return found
		}
	}
	c.t.Fatalf("no %T %q", none, name)
	return none
}

// running is a cluster with a set called w in step.
func running(t fatal, replicas, size int32, edits ...edit) *cluster {
	t.Helper()
	c := newCluster(t)
	c.pass(time.Minute)
	fakeapi.Add(c.Server, fakeapi.Set("w", replicas, size, edits...))
	c.settle()
	return c
}

func condition(status lwsv1.LeaderWorkerSetStatus, conditionType string) metav1.Condition {
	for _, c := range status.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return metav1.Condition{}
}
