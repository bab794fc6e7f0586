package disaggregated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregatedcache"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/memory"
	"lockstep.dev/lockstep/internal/reconcile"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// world is a fake API server on which the loop of the operator runs, while users delete and create the same set, its
// objects are lost, and caches lag.
type world struct {
	*fakeapi.Controllers
	t      *rapid.T
	cached *fakeapi.Reader
	loop   *loop
	// acting is the incarnation that a reconcile is about, and faulty is set while its writes may fail.
	acting types.UID
	faulty bool
	images int
}

// delivered are the kinds that reach the cache one at a time.
var delivered = []identity.Kind{
	identity.KindDisaggregatedSet, identity.KindDisaggregatedSetRoleScaler, identity.KindLeaderWorkerSet, identity.KindPod,
	identity.KindService, identity.KindControllerRevision,
}

var request = ctrl.Request{NamespacedName: types.NamespacedName{Namespace: fakeapi.Namespace, Name: "a"}}

func newWorld(t *rapid.T) *world {
	store := fakeapi.New()
	for _, object := range []client.Object{&corev1.Service{}, &appsv1.ControllerRevision{}} {
		expect.OK(t, store.IndexField(t.Context(), object, "lockstep.disaggregatedset", disaggregatedcache.SetKey))
	}
	expect.OK(t, disaggregatedcache.Index(t.Context(), store))
	w := &world{Controllers: fakeapi.Control(store), t: t, images: 1}
	w.start()
	return w
}

// start begins a process of the operator: it remembers nothing, and its cache is filled.
func (w *world) start() {
	w.cached = w.Lagging().Whole()
	known, actor := memory.New(), apply.New(w.Server, w.Live())
	w.loop = &loop{
		Executor: reconcile.Executor{
			Memory: known, Writer: func() reconcile.Writer { return writer{w, actor.ForReconcile()} }, Report: report.New(&events.FakeRecorder{}),
			Together: func(n int, do func(int)) {
				for i := range n {
					do(i)
				}
			},
			Now: func() time.Time { return w.Now }, Wake: func(client.Object) {},
		},
		observer: &disaggregatedcache.Observer{Sets: w.cached, Beside: w.cached, Live: w.Live(), Memory: known},
		requests: &requests{},
	}
}

// writer judges each write, which may fail.
type writer struct {
	*world
	reconcile.Writer
}

func (w writer) Do(ctx context.Context, a action.Action) (version string, err error) {
	fault := 9
	if w.faulty {
		fault = rapid.IntRange(0, 20).Draw(w.t, "fault")
	}
	if fault == 0 {
		return "", errors.New("internal error")
	}
	found := w.Of(a.Target())
	version, err = w.Writer.Do(ctx, a)
	if err != nil {
		return version, err
	}
	w.judge(a, found)
	create, _ := a.(action.Create)
	relabel, _ := a.(action.Relabel)
	if !create.Uncached && !relabel.Uncached { // later reads wait for the write
		w.cached.Deliver(a.Target().Kind)
	}
	if fault == 1 {
		return version, errors.New("the answer is lost")
	}
	return version, nil
}

// judge fails unless a write concerns the incarnation that the reconcile is about.
func (w *world) judge(a action.Action, found client.Object) {
	set := fakeapi.Find[*dsv1.DisaggregatedSet](w.Server, "a")
	if create, is := a.(action.Create); is {
		isWanted := create.Owner.UID == w.acting && set != nil && set.UID == w.acting && set.DeletionTimestamp == nil
		expect.Must(w.t, isWanted, "%s is created for %s, of which the API server has %+v", a.Target(), create.Owner.UID, set)
		return
	}
	expect.Must(w.t, found != nil && found.GetUID() == a.Target().UID, "%s %s: the API server has another incarnation", a.About().Verb, a.Target())
	if a.Target().Kind == identity.KindDisaggregatedSet {
		expect.Must(w.t, found.GetUID() == w.acting, "%s of another incarnation", a.About().Verb)
		return
	}
	owner := metav1.GetControllerOf(found)
	expect.Must(w.t, owner != nil && owner.UID == w.acting, "%s %s, which %v owns, and not %s", a.About().Verb, a.Target(), owner, w.acting)
}

func (w *world) reconcile(isFaulty bool) {
	set := &dsv1.DisaggregatedSet{}
	_ = w.cached.Get(w.t.Context(), request.NamespacedName, set)
	w.acting, w.faulty = set.UID, isFaulty
	_, _ = w.loop.reconcile(w.t.Context(), request) // a write that failed is written again
	w.acting, w.faulty = "", false
}

// step lets one actor do one thing.
func (w *world) step() {
	switch rapid.IntRange(0, 13).Draw(w.t, "actor") {
	case 0, 1, 2, 3:
		w.reconcile(true)
	case 4, 5:
		if all := fakeapi.All[*lwsv1.LeaderWorkerSet](w.Objects); len(all) > 0 {
			w.run(rapid.SampledFrom(all).Draw(w.t, "child"))
		}
	case 6:
		if all := fakeapi.All[client.Object](w.Objects); len(all) > 0 {
			w.Collect(rapid.SampledFrom(all).Draw(w.t, "object"))
		}
	case 7, 8:
		w.cached.Deliver(rapid.SampledFrom(delivered).Draw(w.t, "kind"))
	case 9:
		if rapid.IntRange(0, 3).Draw(w.t, "restart") == 0 {
			w.start()
		}
	case 10:
		w.pass(time.Duration(rapid.IntRange(100, 5000).Draw(w.t, "milliseconds")) * time.Millisecond)
	case 11, 12:
		w.user()
	case 13:
		w.controllers()
	}
}

func (w *world) pass(d time.Duration) { w.Now = w.Now.Add(d) }

// newSet is one of few sets: the next incarnation may have the same roles as the last one.
func (w *world) newSet() *dsv1.DisaggregatedSet {
	set := &dsv1.DisaggregatedSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "a"}}
	for _, name := range []string{"p", "d"} {
		role := dsv1.DisaggregatedRole{Name: name, Spec: fakeapi.Set("a", rapid.Int32Range(1, 2).Draw(w.t, "replicas"), 1).Spec}
		role.Spec.RolloutStrategy.RollingUpdateConfiguration = nil // one group surges
		set.Spec.Roles = append(set.Spec.Roles, role)
	}
	if rapid.Bool().Draw(w.t, "external") {
		set.Spec.Roles[1].Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingExternal}
	} else {
		set.Spec.Slices = new(rapid.Int32Range(1, 2).Draw(w.t, "slices"))
	}
	if rapid.Bool().Draw(w.t, "services") {
		set.Annotations = map[string]string{dsv1.ServicesAnnotationKey: "true"}
	}
	return set
}

// user creates the set, changes or deletes it, or deletes what the operator made.
func (w *world) user() {
	set := fakeapi.Find[*dsv1.DisaggregatedSet](w.Server, "a")
	switch {
	case set == nil:
		fakeapi.Add(w.Server, w.newSet())
	case set.DeletionTimestamp != nil:
	default:
		switch rapid.IntRange(0, 5).Draw(w.t, "user") {
		case 0, 1:
			w.Remove(set, rapid.SampledFrom([]metav1.DeletionPropagation{
				metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
			}).Draw(w.t, "how"))
			if fakeapi.Find[*dsv1.DisaggregatedSet](w.Server, "a") == nil {
				fakeapi.Add(w.Server, w.newSet())
			}
		case 2:
			w.edit(func(set *dsv1.DisaggregatedSet) {
				w.images = 1 + w.images%3
				for i := range set.Spec.Roles {
					set.Spec.Roles[i].Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = fmt.Sprint("image:", w.images)
				}
			})
		case 3:
			w.edit(func(set *dsv1.DisaggregatedSet) {
				if set.Spec.Slices != nil {
					set.Spec.Slices = new(rapid.Int32Range(1, 2).Draw(w.t, "slices"))
				}
				set.Spec.Roles[0].Spec.Replicas = new(rapid.Int32Range(1, 3).Draw(w.t, "replicas"))
			})
		case 4:
			if scaler := fakeapi.Find[*dsv1.DisaggregatedSetRoleScaler](w.Server, "a-d"); scaler != nil && scaler.DeletionTimestamp == nil {
				fakeapi.Edit(w.Server, "a-d", func(s *dsv1.DisaggregatedSetRoleScaler) {
					s.Spec.Replicas = rapid.Int32Range(1, 3).Draw(w.t, "replicas")
					s.Generation++
				})
			}
		case 5:
			var made []client.Object
			for _, object := range fakeapi.All[client.Object](w.Objects) {
				if metav1.GetControllerOf(object) != nil && object.GetDeletionTimestamp() == nil && fakeapi.KindOf(object) != identity.KindPod {
					made = append(made, object)
				}
			}
			if len(made) > 0 {
				w.Remove(rapid.SampledFrom(made).Draw(w.t, "object"), metav1.DeletePropagationBackground)
			}
		}
	}
}

func (w *world) edit(change func(*dsv1.DisaggregatedSet)) {
	fakeapi.Edit(w.Server, "a", func(set *dsv1.DisaggregatedSet) {
		change(set)
		set.Generation++
	})
}

// run is what the wing of LeaderWorkerSets does: leaders for the wanted groups, and a status. A name that something else
// has is awaited.
func (w *world) run(child *lwsv1.LeaderWorkerSet) {
	if child.DeletionTimestamp != nil {
		return
	}
	wanted, counts := ptr.Deref(child.Spec.Replicas, 1), lwsv1.LeaderWorkerSetStatus{ObservedGeneration: child.Generation}
	for i := range 20 {
		name := identity.LeaderName(child.Name, i)
		pod := fakeapi.Find[*corev1.Pod](w.Server, name)
		switch isOwn := pod != nil && metav1.IsControlledBy(pod, child); {
		case pod == nil && int32(i) < wanted:
			pod = fakeapi.Pod(name, child.Name, 0)
			for key, value := range child.Spec.LeaderWorkerTemplate.WorkerTemplate.Labels {
				pod.Labels[key] = value
			}
			pod.Labels[lwsv1.GroupIndexLabelKey] = fmt.Sprint(i)
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, lwsv1.SizeAnnotationKey, "1")
			pod.UID, pod.CreationTimestamp = "", metav1.Time{}
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(child, lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))}
			fakeapi.Add(w.Server, pod)
		case !isOwn:
		case int32(i) >= wanted && pod.DeletionTimestamp == nil:
			w.Remove(pod, metav1.DeletePropagationBackground)
		case pod.DeletionTimestamp == nil:
			if counts.Replicas++; !fakeapi.Ready(pod) {
				w.Run(pod)
				continue
			}
			counts.ReadyReplicas, counts.UpdatedReplicas = counts.ReadyReplicas+1, counts.UpdatedReplicas+1
		default:
			w.Run(pod)
		}
	}
	if child.Status.ObservedGeneration != counts.ObservedGeneration || child.Status.Replicas != counts.Replicas || child.Status.ReadyReplicas != counts.ReadyReplicas {
		fakeapi.Edit(w.Server, child.Name, func(child *lwsv1.LeaderWorkerSet) { child.Status = counts })
	}
}

// controllers lets all other controllers act once.
func (w *world) controllers() {
	for _, child := range fakeapi.All[*lwsv1.LeaderWorkerSet](w.Objects) {
		w.run(child)
	}
	for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
		if pod.DeletionTimestamp != nil {
			w.Run(pod)
		}
	}
	for _, object := range fakeapi.All[client.Object](w.Objects) {
		if w.Of(identity.RefOf(fakeapi.KindOf(object), object)) != nil {
			w.Collect(object)
		}
	}
}

// tidy is what a user does in the end: the set is there, and nothing that an orphaning deletion left has a name of it.
func (w *world) tidy() {
	if fakeapi.Find[*dsv1.DisaggregatedSet](w.Server, "a") == nil {
		fakeapi.Add(w.Server, w.newSet())
	}
	for _, object := range fakeapi.All[client.Object](w.Objects) {
		if fakeapi.KindOf(object) != identity.KindDisaggregatedSet && len(object.GetOwnerReferences()) == 0 && object.GetDeletionTimestamp() == nil {
			w.Remove(object, metav1.DeletePropagationBackground)
		}
	}
}

// settle lets everybody act until nothing changes.
func (w *world) settle() {
	w.untilStill(func() {
		w.catchUp()
		w.controllers()
		w.tidy()
		w.pass(time.Second)
	})
}

// catchUp fills the cache, and reconciles the set.
func (w *world) catchUp() {
	for _, kind := range delivered {
		w.cached.Deliver(kind)
	}
	w.reconcile(false)
}

// untilStill does something until it changes nothing.
func (w *world) untilStill(do func()) {
	for range 300 {
		before := w.Version()
		do()
		var next int
		_, _ = fmt.Sscan(w.Version(), &next)
		if fmt.Sprint(next-1) == before {
			return
		}
	}
	w.t.Fatalf("no end: %v", w.names())
}

func (w *world) names() (names []string) {
	for _, object := range fakeapi.All[client.Object](w.Objects) {
		names = append(names, fmt.Sprintf("%s %s %s", fakeapi.KindOf(object), object.GetName(), object.GetUID()))
	}
	slices.Sort(names)
	return names
}

// checkWhole checks that the set has what it wants, once, and that nothing more is written.
func (w *world) checkWhole() {
	set := fakeapi.Find[*dsv1.DisaggregatedSet](w.Server, "a")
	expect.Must(w.t, meta.IsStatusConditionTrue(set.Status.Conditions, dsv1.ConditionAvailable), "conditions %v of %v", set.Status.Conditions, w.names())
	revision := expect.Value(disaggregated.RevisionOf(set.Spec.Roles))(w.t)
	wanted, found := map[string]int32{}, map[string]int32{}
	for i := range set.Spec.Roles {
		role := &set.Spec.Roles[i]
		n := ptr.Deref(role.Spec.Replicas, 1)
		if disaggregated.IsExternal(role) {
			scaler := fakeapi.Find[*dsv1.DisaggregatedSetRoleScaler](w.Server, "a-"+role.Name)
			expect.Must(w.t, scaler != nil && metav1.IsControlledBy(scaler, set), "scaler %+v", scaler)
			n = scaler.Spec.Replicas
		}
		for slice := range disaggregated.Slices(set) {
			wanted[disaggregated.ChildName("a", disaggregated.Place{Slice: slice, Revision: revision, Role: role.Name})] = n
		}
	}
	for _, child := range fakeapi.All[*lwsv1.LeaderWorkerSet](w.Objects) {
		expect.Must(w.t, metav1.IsControlledBy(child, set), "leaderworkerset %s of %v", child.Name, child.OwnerReferences)
		found[child.Name] = ptr.Deref(child.Spec.Replicas, 1)
	}
	expect.Equal(w.t, wanted, found)
	services := map[string]int32{}
	for _, service := range fakeapi.All[*corev1.Service](w.Objects) {
		child := strings.TrimSuffix(service.Name, "-prv")
		expect.Must(w.t, metav1.IsControlledBy(service, set), "service %s of %v", service.Name, service.OwnerReferences)
		services[child] = wanted[child]
	}
	if set.Annotations[dsv1.ServicesAnnotationKey] == "true" || len(services) > 0 {
		expect.Equal(w.t, wanted, services)
	}
	written := len(w.Requests)
	w.reconcile(false)
	expect.Must(w.t, len(w.Requests) == written, "at rest the operator writes %+v", w.Requests[written:])
}

// TestASetActsOnNothingOfAnEarlierOne: whatever is deleted and created again, in any order, with caches that lag by seconds and
// writes that fail, each write names an object of the incarnation that it is for. In the end the set has all that it wants.
func TestASetActsOnNothingOfAnEarlierOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		fakeapi.Add(w.Server, w.newSet())
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			w.step()
		}
		w.settle()
		w.checkWhole()
	})
}
