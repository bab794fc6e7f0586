package lws_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/reconcile"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// scenario is what may happen in a world. In each, writes fail, lose their answer, or are the last
// of their process; operators restart, with caches that are filled at different moments.
type scenario struct {
	changes, harms       []string // what users change, and what breaks
	mostEdits, mostHarms int
	deletions            bool // the set is deleted and created again
	strict               bool // nothing but the rollout changes partitions and takes groups down
}

// world is a cluster in which a set is changed and broken while its controllers act in
// any order and the caches of the operator lag.
type world struct {
	*cluster
	t    *rapid.T
	met  *met
	may  scenario
	next Set // the next incarnation of the set

	images, edits, harms int
	scaled, broken       bool // replicas were changed; a broken image was rolled out

	former *fakeapi.Reader // what a cache showed a while ago
	// crashes counts how often a pod of a name will still crash once it runs.
	crashes map[string]int
	foreign map[types.UID]bool // objects of others under names of the set
	noGC    bool               // the garbage collector is off
	grace   time.Duration      // how long a deleted pod stays, at least
	// orphaned is set once a leader orphaned its workers: those that run are adopted as they are
	// placed.
	orphaned bool
	// current is set while the cache of the set being read is up to date.
	current bool
	// paused is set while the plan of a paused set is carried out.
	paused bool
	// faults is set while writes may fail.
	faults bool

	judge func(action.Action) error // a law of writes beside those of every world
	fails func(Pod, string)         // hears of every pod that is made to fail
	after func()                    // an invariant, checked after every step
}

// kinds are delivered to caches one at a time.
var kinds = []identity.Kind{
	identity.KindLeaderWorkerSet, identity.KindStatefulSet, identity.KindPod, identity.KindService,
	identity.KindControllerRevision, identity.KindPersistentVolumeClaim,
}

// groupNames are the leaders of all groups that a set of a world may have.
var groupNames = func() (names []string) {
	for i := range 9 {
		names = append(names, identity.LeaderName("w", i))
	}
	return names
}()

// newWorld returns a world with a set, and without lag yet.
func newWorld(t *rapid.T, m *met, may scenario, set Set) *world {
	w := &world{cluster: newCluster(t), t: t, met: m, may: may, images: 1, foreign: map[types.UID]bool{}, crashes: map[string]int{},
		judge: func(action.Action) error { return nil }, fails: func(Pod, string) {}, after: func() {}}
	w.pass(time.Minute)
	node(map[string]string{"rack": "1", "row": "1"})(w.cluster)
	set.Spec.PodTerminationPolicy = rapid.SampledFrom(terminationPolicies).Draw(t, "termination")
	fakeapi.Add(w.Server, set)
	return w
}

// lag lets the caches lag from now on, and judges writes.
func (w *world) lag() {
	w.writer = func(actor reconcile.Writer) reconcile.Writer { return &process{world: w, actor: actor} }
	w.cached, w.former = w.Lagging(), w.Lagging()
	w.awake()
}

func (w *world) deliver() {
	for _, kind := range kinds {
		w.cached.Deliver(kind)
	}
	w.cached.Deliver(identity.KindPodDisruptionBudget)
}

// restart starts a new process, whose caches show some kinds as they were a while ago.
func (w *world) restart() {
	w.cached = w.former
	w.former = w.Lagging()
	for _, kind := range kinds {
		if rapid.Bool().Draw(w.t, "fresh") {
			w.cached.Deliver(kind)
		}
	}
	w.awake()
}

func (w *world) reconcileSet(faults bool) {
	set := &lwsv1.LeaderWorkerSet{}
	w.paused = w.cached.Get(ctx, key("w"), set) == nil && lws.Paused(set)
	w.faults = faults
	_, _, _ = w.loop.Set(ctx, request("w")) // a write that failed is written again
	w.paused, w.faults = false, false
}

func (w *world) reconcileGroup(name string, faults bool) {
	_, plan, _ := groupPlan(w.observer, name, w.Now)
	w.met.waits(plan)
	w.faults = faults
	_, _ = w.loop.Group(ctx, request(name))
	w.faults = false
}

// reconcileAll reconciles the set and all groups, with caches up to date.
func (w *world) reconcileAll(faults bool) {
	w.deliver()
	w.current = true
	w.reconcileSet(faults)
	w.current = false
	for _, name := range groupNames {
		w.reconcileGroup(name, faults)
		if !faults {
			w.checkEndedTogether(name)
		}
	}
}

// process is the operator in one reconcile: its writes may fail, and the process may end.
type process struct {
	*world
	actor reconcile.Writer
	ended bool
}

func (p *process) Do(ctx context.Context, a action.Action) (version string, err error) {
	switch {
	case p.ended:
		return "", context.Canceled
	case p.faults:
		return "", p.writeFaultily(ctx, a)
	}
	return "", p.write(ctx, a)
}

func (p *process) writeFaultily(ctx context.Context, a action.Action) error {
	switch rapid.IntRange(0, 24).Draw(p.t, "fault") {
	case 0:
		p.met.when("a crash before a write", true)
		return p.end()
	case 1:
		p.met.when("a crash after a write", p.write(ctx, a) == nil)
		return p.end()
	case 2:
		p.met.when("an answer lost", p.judged(ctx, a) == nil)
		return errors.New("timeout")
	case 3:
		p.met.when("a write refused", true)
		return errors.New("internal error")
	}
	return p.write(ctx, a)
}

func (p *process) end() error {
	p.ended = true
	p.restart()
	return context.Canceled
}

// judged makes a write that the laws of the world judge. What the API server refuses is not judged.
func (p *process) judged(ctx context.Context, a action.Action) error {
	wrong := errors.Join(p.judgeWrite(a), p.judge(a))
	_, err := p.actor.Do(ctx, a)
	p.met.when("a write refused", err != nil)
	if err == nil && wrong != nil {
		p.t.Fatalf("%s %s: %v", a.About().Verb, a.Target(), wrong)
	}
	if err == nil {
		p.met.when(a.About().Because.Code, true)
	}
	return err
}

// write makes a write that the cache shows at once.
func (p *process) write(ctx context.Context, a action.Action) error {
	err := p.judged(ctx, a)
	if err == nil {
		p.cached.Deliver(a.Target().Kind)
	}
	return err
}

// pick draws one of some objects.
func pick[T client.Object](t *rapid.T, objects []T) T {
	return objects[rapid.IntRange(0, len(objects)-1).Draw(t, "which")]
}

// run lets actors act so many times, and checks the laws of decisions now and then.
func (w *world) run(steps int) {
	for i := range steps {
		w.step()
		w.after()
		if i%10 == 0 {
			w.checkLaws()
		}
	}
}

// step lets one actor do one thing.
func (w *world) step() {
	t := w.t
	switch rapid.IntRange(0, 17).Draw(t, "actor") {
	case 0:
		w.harm()
	case 1, 2, 3:
		w.reconcileSet(true)
	case 4, 5:
		w.reconcileGroup(rapid.SampledFrom(groupNames).Draw(t, "group"), true)
	case 6, 7:
		if all := fakeapi.All[StatefulSet](w.Objects); len(all) > 0 {
			w.Sync(pick(t, all))
		}
	case 8:
		if all := fakeapi.All[Pod](w.Objects); len(all) > 0 {
			w.kubelet(pick(t, all))
		}
	case 9:
		if all := fakeapi.All[client.Object](w.Objects); !w.noGC {
			w.Collect(pick(t, all))
		}
	case 10:
		w.cached.Deliver(rapid.SampledFrom(kinds).Draw(t, "kind"))
	case 11:
		w.pass(time.Duration(rapid.IntRange(100, 20_000).Draw(t, "milliseconds")) * time.Millisecond)
	case 12:
		w.restart()
	case 13:
		w.former = w.Lagging()
	case 14:
		w.user()
	case 15, 16:
		w.reconcileAll(true)
	case 17:
		w.controllers()
	}
}

// kubelet takes a pod a step further, or lets it crash. A broken image never runs.
func (w *world) kubelet(pod Pod) {
	switch {
	case slices.Contains(pod.Finalizers, heldBy):
		w.Release(pod, heldBy)
	case pod.DeletionTimestamp != nil && w.Now.Sub(pod.DeletionTimestamp.Time) < w.grace:
	case pod.DeletionTimestamp == nil && pod.Spec.Containers[0].Image == brokenImage:
	case w.crashes[pod.Name] > 0 && fakeapi.Ready(pod):
		w.crashes[pod.Name]--
		fakeapi.Edit(w.Server, pod.Name, crash)
	default:
		w.Run(pod)
	}
}

// controllers lets all StatefulSets, kubelets and the garbage collector act once.
func (w *world) controllers() {
	for _, sts := range fakeapi.All[StatefulSet](w.Objects) {
		w.Sync(sts)
		w.after()
	}
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		w.kubelet(pod)
	}
	if !w.noGC {
		w.collect()
	}
}

// user edits the set, deletes it, or creates it again.
func (w *world) user() {
	set := fakeapi.Find[Set](w.Server, "w")
	switch {
	case set == nil:
		w.create()
	case w.edits >= w.may.mostEdits || set.DeletionTimestamp != nil:
	case w.may.deletions && rapid.IntRange(0, 4).Draw(w.t, "delete") == 0:
		w.edits++
		w.met.when("a set deleted", true)
		w.next = fakeapi.Set("w", 0, 0, func(next Set) { next.Spec = *set.Spec.DeepCopy() })
		if rapid.Bool().Draw(w.t, "another spec") {
			w.change(w.next)
		}
		w.Remove(set, w.propagation(set))
	default:
		w.edits++
		w.edit(w.change)
	}
}

// edit changes the set.
func (w *world) edit(change edit) { user(change)(w.cluster) }

// propagation draws how an object is deleted.
func (w *world) propagation(object client.Object) metav1.DeletionPropagation {
	how := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	drawn := rapid.SampledFrom(how).Draw(w.t, "propagation")
	w.orphaned = w.orphaned || drawn == metav1.DeletePropagationOrphan
	w.met.when(fmt.Sprintf("%s deleted in the %s", fakeapi.KindOf(object), drawn), true)
	return drawn
}

// create creates the next incarnation of the set once the name is free.
func (w *world) create() {
	if w.next != nil && fakeapi.Find[Set](w.Server, "w") == nil {
		fakeapi.Add(w.Server, w.next)
		w.next = nil
	}
}

// settleAfter lets everything act in turn, that much time apart, until twelve turns
// change nothing.
func (w *world) settleAfter(d time.Duration) {
	turn := func() {
		w.create()
		w.reconcileAll(false)
		w.controllers()
		w.pass(d)
	}
	if !w.still(12, 600, turn) {
		w.t.Fatalf("never settles: %v; %v", brief(w.status()), w.decideAll())
	}
}

// live is the set as a cache without lag shows it.
func (w *world) live() lws.SetSnapshot {
	snapshot, _, err := setPlan(lwscache.New(w.Cached(), w.Live(), lwscache.NewMemory()), w.Now)
	expect.OK(w.t, err)
	return snapshot
}

// leaderOf returns the leader at the end of a pod's chain of controllers, or nil.
func (w *world) leaderOf(pod Pod) Pod {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil
	}
	sts := fakeapi.Find[StatefulSet](w.Server, owner.Name)
	if sts == nil || sts.UID != owner.UID {
		return nil
	}
	if sts.Name == "w" {
		return pod
	}
	leader := fakeapi.Find[Pod](w.Server, sts.Name)
	if leader == nil || !metav1.IsControlledBy(sts, leader) {
		return nil
	}
	return leader
}

// met counts how often the premises of a law were true. A law whose premise was
// never true was not tested.
type met struct {
	mu     sync.Mutex
	counts map[string]int
}

func (m *met) when(premise string, holds bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if holds {
		m.counts[premise]++
	}
	return holds
}

// waits counts the waits of a plan, by their codes.
func (m *met) waits(plan lws.Plan) {
	for _, wait := range plan.Waits {
		m.when(wait.Code, true)
	}
}

// otherWorlds moves a seed that was given on, or every round would see the same worlds.
func otherWorlds(t *testing.T) {
	t.Helper()
	given := flag.Lookup("rapid.seed").Value
	seed, err := strconv.ParseUint(given.String(), 10, 64)
	if err == nil && seed != 0 {
		err = given.Set(strconv.FormatUint(seed+1, 10))
	}
	expect.OKf(t, err, "seed %q", given)
}

// inWorlds checks a law in generated worlds, for that many rounds, and fails unless every
// premise was met. A run of few checks proves no premise.
func inWorlds(t *testing.T, rounds int, law func(*rapid.T, *met), premises ...string) {
	t.Helper()
	m := &met{counts: map[string]int{}}
	for range rounds {
		otherWorlds(t)
		rapid.Check(t, func(t *rapid.T) { law(t, m) })
	}
	few := flag.Lookup("rapid.checks").Value.(flag.Getter).Get().(int) < 100
	for _, premise := range premises {
		if m.counts[premise] == 0 && !few && !t.Failed() {
			t.Errorf("invalid run: never met %s; met %v", premise, m.counts)
		}
	}
}
