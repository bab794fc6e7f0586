package pvcfinalizer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

const other = "example.com/keep"

// world is a controller on a fake cluster, step by step. Its caches lag behind
// nothing unless cached is replaced.
type world struct {
	*testing.T
	*Controller
	client.WithWatch
	cached client.Reader
	pods   *pvccache.Pods
	clock  *clocktesting.FakeClock
	told   *events.FakeRecorder
	// lists counts full readings of pods; unreadable has them fail.
	lists      int
	unreadable error
	// refused has writes fail.
	refused error
	// before is called before every write, and during in the middle of every full
	// reading of pods.
	before, during func()
}

func newWorld(t *testing.T, settings pvc.Settings, objects ...client.Object) *world {
	w := &world{T: t, pods: pvccache.NewPods(nil, nil), clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0)), told: events.NewFakeRecorder(100)}
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	w.WithWatch = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, whole := list.(*corev1.PodList); whole {
				w.lists++
				if w.during != nil {
					w.during()
				}
				if w.unreadable != nil {
					return w.unreadable
				}
			}
			return c.List(ctx, list, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if w.before != nil {
				w.before()
			}
			if w.refused != nil {
				return w.refused
			}
			return c.Patch(ctx, o, patch, options...)
		},
	}).Build()
	w.cached = w.WithWatch
	w.follow()
	w.Controller = New(Options{
		Settings: settings, Claims: pvccache.NewClaims(indirect{&w.cached}, w.WithWatch), Pods: w.pods,
		PodReader: func(told func(pvccache.PodRead)) *pvccache.PodReader {
			return pvccache.NewPodReader(w.pods, w.WithWatch, w.clock.Now, told)
		},
		Actor: apply.New(w.WithWatch, w.WithWatch), Recorder: w.told, Clock: w.clock,
	})
	return w
}

// indirect reads through a reader that may be replaced.
type indirect struct{ to *client.Reader }

func (i indirect) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return (*i.to).Get(ctx, key, o, options...)
}

func (i indirect) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return (*i.to).List(ctx, list, options...)
}

// follow shows the watch of pods all pods as they are now.
func (w *world) follow() {
	w.Helper()
	list := &corev1.PodList{}
	if err := w.List(w.Context(), list); err != nil && w.unreadable == nil {
		w.Fatal(err)
	}
	w.lists = 0
	w.show(list.Items...)
}

// show has the informer hold these pods, and reports what changed.
func (w *world) show(pods ...corev1.Pod) {
	w.Helper()
	before, after := map[types.UID]*pvccache.PodUses{}, map[types.UID]bool{}
	for _, object := range w.pods.Store().List() {
		pod := object.(*pvccache.PodUses)
		before[pod.UID] = pod
	}
	var all []any
	for i := range pods {
		all, after[pods[i].UID] = append(all, pvccache.UsesOf(&pods[i])), true
	}
	if err := w.pods.Store().Replace(all, "0"); err != nil {
		w.Fatal(err)
	}
	if w.Controller == nil {
		return
	}
	for uid, was := range before {
		if !after[uid] {
			w.podChanged(was, nil)
		}
	}
	for _, object := range all {
		is := object.(*pvccache.PodUses)
		w.podChanged(before[is.UID], is)
	}
}

// pass has claims looked at, with what becomes of that until nothing is left to do.
func (w *world) pass(names ...string) {
	w.Helper()
	for _, name := range names {
		w.backlog.add(key("ns", name))
	}
	w.drain()
}

func (w *world) drain() {
	for {
		keys, _ := w.backlog.taken()
		if len(keys) == 0 {
			return
		}
		w.process(w.Context(), keys)
		for _, k := range keys {
			w.backlog.done(k)
		}
	}
}

// finalizers are those of a claim, or nil if it has gone.
func (w *world) finalizers(name string) []string {
	w.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	err := w.Get(w.Context(), key("ns", name), claim)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return claim.Finalizers
}

func (w *world) want(name string, finalizers ...string) {
	w.Helper()
	if diff := cmp.Diff(finalizers, w.finalizers(name)); diff != "" {
		w.Errorf("claim %s (-want +got)\n%s", name, diff)
	}
}

func (w *world) events() string {
	var all []string
	for {
		select {
		case e := <-w.told.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}

// remove deletes an object, as if its watch told at once.
func (w *world) remove(o client.Object) {
	w.Helper()
	if err := w.Delete(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

// heldFor is how many claims are counted as held for a reason.
func (w *world) heldFor(reason string) int {
	w.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.narrate.Metrics()...)
	families, err := registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "lockstep_protection_claims_held" && metric.GetLabel()[0].GetValue() == reason {
				return int(metric.GetGauge().GetValue())
			}
		}
	}
	w.Fatalf("nothing is counted as %q", reason)
	return 0
}

func claim(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Finalizers: finalizers}}
}

func deleted(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.DeletionTimestamp = &metav1.Time{Time: time.Unix(999_000, 0)}
	return c
}

func user(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "n"}}
	for _, c := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	return pod
}

var (
	beside = pvc.Settings{Mode: pvc.Barrier}
	alone  = pvc.Settings{Mode: pvc.Barrier, Alone: true}
)

const (
	p = pvc.PodsFinalizer
	b = pvc.BarrierFinalizer
)

func TestClaimsFromBeforeAreDressed(t *testing.T) {
	w := newWorld(t, beside, claim("c", other))
	w.pass("c")
	w.want("c", other, b)
	w = newWorld(t, alone, claim("c", other))
	w.pass("c")
	w.want("c", other, p, b)
	off := claim("c", other, b)
	off.Annotations = map[string]string{pvc.ModeKey: "off"}
	w = newWorld(t, beside, off)
	w.pass("c")
	w.want("c", other)
}

func TestOneFinalizerAtATime(t *testing.T) {
	w := newWorld(t, alone, deleted(claim("c", other, p, b)))
	w.pass("c")
	w.want("c", other, b)
	w.pass("c")
	w.want("c", other)
	if w.lists != 2 {
		t.Errorf("%d readings for two steps", w.lists)
	}
	w = newWorld(t, beside, deleted(claim("c", p, b)))
	w.pass("c")
	w.want("c", p, b) // P is not ours
	if w.lists != 0 {
		t.Errorf("%d readings for nothing", w.lists)
	}
}

func TestOneReadingIsForAllClaims(t *testing.T) {
	w := newWorld(t, beside, user("u", "used"), deleted(claim("used", b)), deleted(claim("one", b)), deleted(claim("two", b)))
	w.pods = pvccache.NewPods(nil, nil) // shows nothing
	w.Controller.pods = w.pods
	w.pass("used", "one", "two")
	w.want("used", b)
	w.want("one")
	w.want("two")
	if w.lists != 1 {
		t.Errorf("%d readings", w.lists)
	}
}

func TestAClaimThatCannotBeJudgedIsTriedAgain(t *testing.T) {
	w := newWorld(t, beside, deleted(claim("c", b)))
	w.unreadable = errors.New("down")
	w.pass("c")
	w.want("c", b)
	if w.backlog.depth() != 1 {
		t.Errorf("depth %d", w.backlog.depth())
	}
	w.unreadable = nil
	w.clock.Step(firstRetry)
	w.drain()
	w.want("c")
	if w.backlog.depth() != 0 {
		t.Errorf("depth %d in the end", w.backlog.depth())
	}
}

func TestAConflictBeginsAnewFromTheLook(t *testing.T) {
	w := newWorld(t, beside, deleted(claim("c", other, b)))
	cached := &corev1.PersistentVolumeClaim{}
	if err := w.Get(t.Context(), key("ns", "c"), cached); err != nil {
		t.Fatal(err)
	}
	w.cached = late{w.WithWatch, cached}
	changed := false
	w.before = func() {
		if changed {
			return
		}
		changed = true
		now := cached.DeepCopy()
		now.Annotations = map[string]string{"example.com/x": "1"}
		if err := w.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		if err := w.Create(t.Context(), user("slipped", "c")); err != nil {
			t.Fatal(err)
		}
	}
	w.pass("c")
	w.want("c", other, b)
	w.clock.Step(firstRetry)
	w.drain() // the cache is late: the claim is read live, and so are the pods
	w.want("c", other, b)
	if w.lists != 2 || !strings.Contains(w.events(), "UsedWithoutProtection") {
		t.Errorf("%d readings; it was not seen who slipped in", w.lists)
	}
	if err := w.Delete(t.Context(), user("slipped")); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(lookAgain) // the watch of pods never showed it: nobody tells that it went
	w.drain()
	w.want("c", other)
}

// late is a cache that shows one claim as it was.
type late struct {
	client.Reader
	claim *corev1.PersistentVolumeClaim
}

func (l late) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if c, ok := o.(*corev1.PersistentVolumeClaim); ok && key.Name == l.claim.Name {
		l.claim.DeepCopyInto(c)
		return nil
	}
	return l.Reader.Get(ctx, key, o, options...)
}

func TestADeletionIsToldOnceWhenPostponedAndOnceWhenItGoesOn(t *testing.T) {
	w := newWorld(t, alone, user("u", "c"), deleted(claim("c", p, b)))
	w.pass("c")
	w.pass("c")
	if got := w.events(); strings.Count(got, "DeletionPostponed") != 1 || !strings.Contains(got, "pod u on node n") {
		t.Errorf("told %q", got)
	}
	if err := w.Delete(t.Context(), user("u")); err != nil {
		t.Fatal(err)
	}
	w.follow()
	w.drain()
	w.pass("c")
	w.want("c")
	if got := w.events(); strings.Count(got, "DeletionReleased") != 1 || strings.Contains(got, "Postponed") {
		t.Errorf("told %q", got)
	}
}

func TestNobodyIsToldOfWhatWasNeverPostponed(t *testing.T) {
	w := newWorld(t, beside, deleted(claim("c", b)))
	w.pass("c")
	w.want("c")
	if got := w.events(); got != "" {
		t.Errorf("told %q", got)
	}
}

func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	living := claim("c", p, b)
	living.Annotations = map[string]string{pvc.UsersAnnotation: "gone=gone,u=u"}
	w := newWorld(t, beside, user("u", "c"), living)
	w.pass("c")
	now := &corev1.PersistentVolumeClaim{}
	if err := w.Get(t.Context(), key("ns", "c"), now); err != nil {
		t.Fatal(err)
	}
	if now.Annotations[pvc.UsersAnnotation] != "u=u" {
		t.Errorf("recorded %q", now.Annotations)
	}
	w.lists = 0
	w.pass("c")
	if w.lists != 0 {
		t.Error("pods that are there are looked for")
	}
}

func TestAPodOnRecordKeepsItsClaim(t *testing.T) {
	c := deleted(claim("c", b))
	c.Annotations = map[string]string{pvc.UsersAnnotation: "u=u"}
	w := newWorld(t, beside, user("u"), c) // it names no claim: a later version of it, or a forgery
	w.pass("c")
	w.want("c", b)
	if got := w.events(); !strings.Contains(got, "DeletionPostponed") || !strings.Contains(got, "on record as users, and there: pod u") {
		t.Errorf("told %q", got)
	}
	if err := w.Delete(t.Context(), user("u")); err != nil {
		t.Fatal(err)
	}
	w.follow()
	w.clock.Step(lookAtRecords)
	w.drain()
	w.want("c")
}

func TestAPodThatLetsGoWakesItsClaims(t *testing.T) {
	living, going := claim("living", p, b), deleted(claim("going", p, b))
	bound, unbound, over := user("u", "living", "going"), user("u", "going"), user("u", "going")
	unbound.Spec.NodeName, over.Status.Phase = "", corev1.PodSucceeded
	another := user("u", "going")
	another.UID = "another"
	for name, tt := range map[string]struct {
		before, after *corev1.Pod
		want          []string
	}{
		"comes":                 {nil, bound, []string{"ns/going"}},
		"comes to a node":       {unbound, bound, []string{"ns/going"}},
		"comes unbound":         {nil, unbound, []string{"ns/going"}},
		"changes":               {bound, bound, nil},
		"ends":                  {bound, over, nil},
		"goes":                  {bound, nil, []string{"ns/going"}},
		"gives its name away":   {bound, another, []string{"ns/going"}},
		"uses nothing and goes": {user("u"), nil, nil},
	} {
		w := newWorld(t, beside, living.DeepCopy(), going.DeepCopy())
		for i, pod := range []*corev1.Pod{tt.before, tt.after} {
			var list []corev1.Pod
			if pod != nil {
				list = []corev1.Pod{*pod.DeepCopy()}
			}
			if i == 1 {
				w.backlog.taken()
				w.backlog = newBacklog(w.clock, func(string) time.Duration { return 0 })
			}
			w.show(list...)
		}
		keys, _ := w.backlog.taken()
		if diff := cmp.Diff(tt.want, namesOf(keys)); diff != "" {
			t.Errorf("a pod %s (-want +got)\n%s", name, diff)
		}
	}
}

func TestOnlyWhatFinalizersAreDecidedByConcerns(t *testing.T) {
	was := claim("c", p)
	for name, tt := range map[string]struct {
		edit func(*corev1.PersistentVolumeClaim)
		want bool
	}{
		"status":      {func(c *corev1.PersistentVolumeClaim) { c.Status.Phase, c.ResourceVersion = corev1.ClaimBound, "2" }, false},
		"deletion":    {func(c *corev1.PersistentVolumeClaim) { deleted(c) }, true},
		"finalizers":  {func(c *corev1.PersistentVolumeClaim) { c.Finalizers = slices.Clone([]string{b}) }, true},
		"annotations": {func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{pvc.ModeKey: "off"} }, true},
		"incarnation": {func(c *corev1.PersistentVolumeClaim) { c.UID = "other" }, true},
	} {
		is := was.DeepCopy()
		tt.edit(is)
		if got := concerns(was, is); got != tt.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// A pass notes what it finds of a claim after the event has told that it went: it
// must not be counted for ever.
func TestAClaimThatGoesDuringAPassIsForgotten(t *testing.T) {
	w := newWorld(t, beside, deleted(claim("c", b)))
	w.during = func() {
		if err := w.Create(t.Context(), user("slipped", "c")); err != nil {
			t.Fatal(err)
		}
		gone := deleted(claim("c", b))
		w.cached = refusingClaims{w.WithWatch}
		w.claimEvents().OnDelete(gone)
	}
	w.pass("c")
	if n := w.heldFor("UsedWithoutProtection"); n != 0 {
		t.Errorf("%d claims are held, and there is none", n)
	}
	if len(w.doubted) > 0 {
		t.Errorf("still remembered: %v", w.doubted)
	}
}

// The answer to the write that ends a claim may come after its event.
func TestAReleasedClaimIsForgotten(t *testing.T) {
	w := newWorld(t, beside, deleted(claim("c", b)))
	w.before = func() {
		w.cached = refusingClaims{w.WithWatch}
		w.claimEvents().OnDelete(deleted(claim("c", b)))
	}
	w.pass("c")
	w.want("c")
	if len(w.doubted) > 0 {
		t.Errorf("still remembered: %v", w.doubted)
	}
}

// refusingClaims is a cache from which the claims have gone.
type refusingClaims struct{ client.Reader }

func (r refusingClaims) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if _, claim := o.(*corev1.PersistentVolumeClaim); claim {
		return apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), key.Name)
	}
	return r.Reader.Get(ctx, key, o, options...)
}

func TestWhatCannotBeWrittenIsCountedAsSuch(t *testing.T) {
	w := newWorld(t, beside, deleted(claim("c", b)))
	w.refused = errors.New("guarded")
	w.pass("c")
	if n := w.heldFor("WriteFailed"); n != 1 {
		t.Errorf("%d claims wait to be written", n)
	}
	w.refused = nil
	w.clock.Step(lastRetry)
	w.drain()
	w.want("c")
}

func TestAClaimThatIsObservedIsCountedWhileItIsUsed(t *testing.T) {
	c := deleted(claim("c", other, p))
	c.Annotations = map[string]string{pvc.ModeKey: "observe"}
	w := newWorld(t, beside, user("u", "c"), c)
	w.pass("c")
	if n := w.heldFor("InUse"); n != 1 {
		t.Errorf("%d claims are held by pods", n)
	}
	w.remove(user("u"))
	w.follow()
	w.drain()
	if n := w.heldFor("InUse"); n != 0 {
		t.Errorf("%d claims are held by pods, and there is none", n)
	}
}

// A claim that is kept by a reading has not failed: its next failure is its first.
func TestOldFailuresAreForgottenWhenAClaimWasJudged(t *testing.T) {
	w := newWorld(t, beside, deleted(claim("c", b)))
	w.unreadable = errors.New("down")
	w.pass("c")
	for range 5 {
		w.clock.Step(lastRetry)
		w.drain()
	}
	w.unreadable = nil
	if err := w.Create(t.Context(), user("slipped", "c")); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(lastRetry)
	w.drain()
	if n := w.backlog.limit.NumRequeues(key("ns", "c")); n != 0 {
		t.Errorf("%d failures are remembered", n)
	}
}

// Beside the built-in controller nothing else would have the claim looked at again
// before its pod ends.
func TestAPodThatIsSeenLateIsToldOf(t *testing.T) {
	w := newWorld(t, beside, deleted(claim("c", p, b)))
	w.pass("c")
	if err := w.Create(t.Context(), user("u", "c")); err != nil {
		t.Fatal(err)
	}
	w.follow()
	w.drain()
	if got := w.events(); !strings.Contains(got, "DeletionPostponed") || !strings.Contains(got, "pod u on node n") {
		t.Errorf("told %q", got)
	}
}
