package pvchold

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

// lagging is the controller of claims, with caches that are not what is.
type lagging struct {
	*testing.T
	*claimReconciler
	cached, live client.WithWatch
	// reads counts live readings of namespaces; unreadable has them fail.
	reads      int
	unreadable error
	// looks counts live readings of pods.
	looks int
	// pods are those in memory: none, unless it is filled.
	pods  *pvccache.Pods
	clock time.Time
}

func newLagging(t *testing.T) *lagging {
	return newLaggingFrom(t, desiredFrom(t, "nowhere.invalid"))
}

// desiredFrom reads workloads there.
func desiredFrom(t *testing.T, host string) *pvccache.Desired {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := dynamic.NewForConfig(&rest.Config{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	desired, err := pvccache.NewDesired(kube, foreign, nil, func(*lwsv1.LeaderWorkerSet) int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	return desired
}

func newLaggingFrom(t *testing.T, desired *pvccache.Desired) *lagging {
	l := &lagging{T: t, pods: pvccache.NewPods(), clock: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	l.cached = fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	l.live = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if o.GetObjectKind().GroupVersionKind().Kind == "Namespace" {
				l.reads++
				if l.unreadable != nil {
					return l.unreadable
				}
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ok := list.(*corev1.PodList); ok {
				l.looks++
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
	claims := pvccache.NewClaims(l.cached, l.live)
	l.claimReconciler = &claimReconciler{&pass{
		observe: pvccache.NewHolds(nil, claims, l.pods, desired, pvc.Settings{Mode: pvc.Barrier}, time.Minute),
		act:     apply.New(l.live, l.live), narrate: report.NewHolds(report.New(events.NewFakeRecorder(100))), ttl: time.Hour,
		now: func() time.Time { return l.clock },
	}}
	return l
}

func (l *lagging) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// is has the API server show an object, and shown has the caches show it.
func (l *lagging) is(o client.Object)    { l.Helper(); l.must(l.live.Create(l.Context(), o)) }
func (l *lagging) shown(o client.Object) { l.Helper(); l.must(l.cached.Create(l.Context(), copied(o))) }

func copied(o client.Object) client.Object {
	o = o.DeepCopyObject().(client.Object)
	o.SetResourceVersion("")
	return o
}

// both is an object that the caches show as it is.
func (l *lagging) both(o client.Object) {
	l.Helper()
	l.shown(o)
	l.is(o)
}

// follow has the caches show a claim as it is.
func (l *lagging) follow(claim *corev1.PersistentVolumeClaim) {
	l.Helper()
	before := &corev1.PersistentVolumeClaim{}
	l.must(l.cached.Get(l.Context(), client.ObjectKeyFromObject(claim), before))
	claim.ResourceVersion = before.ResourceVersion
	l.must(l.cached.Update(l.Context(), claim))
}

// pass has a claim seen to, and returns it as it is then, or nil.
func (l *lagging) pass(name string) *corev1.PersistentVolumeClaim {
	l.Helper()
	key := types.NamespacedName{Namespace: "ml", Name: name}
	if _, err := l.Reconcile(l.Context(), ctrl.Request{NamespacedName: key}); !errors.Is(err, l.unreadable) {
		l.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{}
	err := l.live.Get(l.Context(), key, claim)
	if apierrors.IsNotFound(err) {
		return nil
	}
	l.must(err)
	return claim
}

func space(life types.UID, mode string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml", UID: life, Labels: map[string]string{pvc.ModeKey: mode}}}
}

// endReleased has a namespace end with all that is in it, in caches or for certain.
func (l *lagging) endReleased(in client.WithWatch, namespace *corev1.Namespace) {
	l.Helper()
	namespace.Finalizers, namespace.Annotations = []string{"example.com/keep"}, map[string]string{pvc.ReleaseAnnotation: string(namespace.UID)}
	namespace.ResourceVersion = ""
	l.must(in.Create(l.Context(), namespace))
	l.must(in.Delete(l.Context(), namespace))
}

// heldByHand is a claim that a person holds, of a life.
func heldByHand(name string, life types.UID) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ml", Name: name, UID: life + types.UID(name), Finalizers: []string{pvc.PodsFinalizer, pvc.BarrierFinalizer},
		Annotations: map[string]string{pvc.HoldAnnotation: "mine", pvc.HoldersAnnotation: "Hold/" + name},
	}}
}

func isHeld(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.DeletionTimestamp == nil && claim.Annotations[pvc.HoldersAnnotation] != ""
}

// The caches show the claim of a namespace that was made again, and still the
// namespace before, released and on its way out.
func TestANamespaceMadeAgainKeepsItsClaims(t *testing.T) {
	l := newLagging(t)
	l.endReleased(l.cached, space("1", "hold"))
	l.is(space("2", "hold"))
	l.both(heldByHand("data", "2"))
	if claim := l.pass("data"); !isHeld(claim) {
		t.Errorf("a claim of a living namespace was given up: %+v", claim)
	}
}

func TestAReleasedNamespaceIsReadOnceForAllItsClaims(t *testing.T) {
	l := newLagging(t)
	l.endReleased(l.cached, space("1", "hold"))
	l.endReleased(l.live, space("1", "hold"))
	const many = 50
	for i := range many {
		l.both(heldByHand(fmt.Sprint("data-", i), "1"))
	}
	for i := range many {
		if claim := l.pass(fmt.Sprint("data-", i)); isHeld(claim) || claim.DeletionTimestamp == nil {
			t.Errorf("held by a namespace that was released: %+v", claim)
		}
	}
	if l.reads != 1 {
		t.Errorf("%d live readings of the namespace, want 1", l.reads)
	}
}

// A reading that began before a claim was seen tells nothing of it.
func TestAReadingOfTheLifeBeforeGivesUpNoClaimOfTheNext(t *testing.T) {
	l := newLagging(t)
	l.endReleased(l.cached, space("1", "hold"))
	before := space("1", "hold")
	l.endReleased(l.live, before)
	l.both(heldByHand("old", "1"))
	l.pass("old")
	l.must(l.live.Get(t.Context(), client.ObjectKeyFromObject(before), before))
	before.Finalizers = nil
	l.must(l.live.Update(t.Context(), before))
	l.is(space("2", "hold"))
	l.both(heldByHand("new", "2"))
	if claim := l.pass("new"); !isHeld(claim) {
		t.Errorf("given up by what the life before said: %+v", claim)
	}
}

// What was read is shared with those that come together, and no longer.
func TestANamespaceThatChoseAgainIsReadAgain(t *testing.T) {
	l := newLagging(t)
	chose := space("1", "hold")
	l.shown(space("1", "barrier"))
	l.is(chose)
	l.both(heldByHand("data", "1"))
	claim := l.pass("data")
	if !isHeld(claim) {
		t.Error("not held any more, and mode hold was chosen just now")
	}
	l.follow(claim)
	chose.Labels[pvc.ModeKey] = "barrier"
	l.must(l.live.Update(t.Context(), chose))
	l.clock = l.clock.Add(time.Second)
	if isHeld(l.pass("data")) {
		t.Error("held on, and mode barrier was chosen")
	}
}

// Mode hold was chosen and taken back within the moment that a reading is shared. The claim
// is looked at because of that, and nothing has it looked at again.
func TestAModeThatIsTakenBackAtOnceCounts(t *testing.T) {
	l := newLagging(t)
	chose, shown := space("1", "hold"), space("1", "barrier")
	l.shown(shown)
	l.is(chose)
	l.both(heldByHand("data", "1"))
	claim := l.pass("data")
	if !isHeld(claim) {
		t.Fatal("not held any more, and mode hold was chosen just now")
	}
	l.follow(claim)
	chose.Labels[pvc.ModeKey] = "barrier"
	l.must(l.live.Update(t.Context(), chose))
	shown = chose.DeepCopy()
	shown.ResourceVersion = ""
	l.must(l.cached.Update(t.Context(), shown))
	if isHeld(l.pass("data")) {
		t.Error("held by what was read before the mode was taken back")
	}
}

// The caches lag: as long as they do, what was read is newer than what they show, and what
// comes after it comes as an event.
func TestClaimsShareAReadingThatIsNewerThanTheCaches(t *testing.T) {
	l := newLagging(t)
	l.shown(space("1", "observe"))
	is := space("1", "hold")
	l.is(is)
	is.Labels[pvc.ModeKey] = "barrier"
	l.must(l.live.Update(t.Context(), is))
	names := []string{"a", "b", "c"}
	for _, name := range names {
		l.both(heldByHand(name, "1"))
	}
	for _, name := range names {
		if isHeld(l.pass(name)) {
			t.Errorf("%s is held in mode barrier", name)
		}
	}
	if l.reads != 1 {
		t.Errorf("its namespace was read %d times for %d claims", l.reads, len(names))
	}
}

// A claim that nobody has looked at yet, of a namespace that no cache has shown yet.
func TestAClaimOfANamespaceUnseenStaysUnverified(t *testing.T) {
	l := newLagging(t)
	l.is(space("1", "hold"))
	born := heldByHand("data", "1")
	born.Annotations = map[string]string{pvc.HoldersAnnotation: pvc.Unverified}
	l.both(born)
	if claim := l.pass("data"); !isHeld(claim) {
		t.Errorf("it may be deleted, before anybody looked: %v", claim.Annotations)
	}
}

func TestANamespaceThatCannotBeReadGivesUpNothing(t *testing.T) {
	l := newLagging(t)
	l.endReleased(l.cached, space("1", "hold"))
	l.endReleased(l.live, space("1", "hold"))
	l.both(heldByHand("data", "1"))
	l.unreadable = errors.New("refused")
	if claim := l.pass("data"); !isHeld(claim) {
		t.Errorf("given up: %+v", claim)
	}
}

// What stands costs no reading.
func TestAClaimThatStaysHeldCostsNoReading(t *testing.T) {
	l := newLagging(t)
	l.both(space("1", "hold"))
	l.both(heldByHand("data", "1"))
	if !isHeld(l.pass("data")) || l.reads > 0 {
		t.Errorf("%d live readings", l.reads)
	}
}
