package pvchold

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	"lockstep.dev/lockstep/internal/kinds"
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
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "nowhere.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	size := func(*lwsv1.LeaderWorkerSet) int { return 0 }
	workloads, err := pvccache.NewWorkloads(kube, kinds.Clients{}, nil, size, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &lagging{T: t, pods: pvccache.NewPods(nil, nil), clock: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
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
		observe: pvccache.NewHolds(nil, claims, l.pods, workloads, pvccache.Reader{Live: l.live, Started: size, Served: noneServed}, pvc.Settings{Mode: pvc.Barrier}, time.Minute),
		act:     apply.New(l.live, l.live), narrate: report.NewHolds(report.New(events.NewFakeRecorder(100))), ttl: time.Hour,
		now: func() time.Time { return l.clock },
	}}
	return l
}

func noneServed(context.Context, schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	return schema.GroupVersionResource{}, nil
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

// Caches may be of an earlier incarnation of the namespace, and lack holders. Only what the
// API server itself shows ends a hold.
func TestOnlyALiveReadEndsAHold(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "db", UID: "db"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "shell", UID: "shell"}}
	user.Spec.NodeName = "node"
	user.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"},
	}}}
	cooled := pvc.Words{Names: "Pod/old", Until: time.Date(2026, 11, 22, 11, 0, 0, 0, time.UTC)}.String()
	for name, tt := range map[string]struct {
		holders string
		live    []client.Object
		unread  error
		held    bool
	}{
		"not held":                   {cooled, []client.Object{space("1", "hold")}, nil, false},
		"by a workload":              {cooled, []client.Object{space("1", "hold"), set}, nil, true},
		"by a pod":                   {cooled, []client.Object{space("1", "hold"), user}, nil, true},
		"unverified, and not held":   {pvc.Unverified, []client.Object{space("1", "hold")}, nil, false},
		"unverified, and held":       {pvc.Unverified, []client.Object{space("1", "hold"), set}, nil, true},
		"the namespace is unread":    {cooled, []client.Object{space("1", "hold")}, errors.New("unread"), true},
		"the mode was turned up":     {"Hold/x", []client.Object{space("1", "hold"), set}, nil, true},
		"the mode is off, live also": {"Hold/x", []client.Object{space("1", "off"), set}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLagging(t)
			mode := "hold"
			if tt.holders == "Hold/x" {
				mode = "off"
			}
			l.shown(space("1", mode))
			for _, o := range tt.live {
				l.is(o.DeepCopyObject().(client.Object))
			}
			claim := heldByHand("data-db-0", "1")
			claim.Annotations = map[string]string{pvc.HoldersAnnotation: tt.holders}
			l.both(claim)
			l.unreadable = tt.unread
			if got := l.pass("data-db-0"); isHeld(got) != tt.held {
				t.Errorf("held %t: %v", isHeld(got), got.Annotations)
			}
		})
	}
}

func TestANamespaceMadeAgainKeepsItsClaims(t *testing.T) {
	l := newLagging(t)
	l.endReleased(l.cached, space("1", "hold"))
	l.is(space("2", "hold"))
	l.both(heldByHand("data", "2"))
	if claim := l.pass("data"); !isHeld(claim) {
		t.Errorf("a PVC of a living namespace was given up: %+v", claim)
	}
}

func TestAPVCThatStaysHeldCostsNoLiveRead(t *testing.T) {
	l := newLagging(t)
	l.both(space("1", "hold"))
	l.both(heldByHand("data", "1"))
	l.pass("data")
	if l.reads+l.looks > 0 {
		t.Errorf("%d reads of the namespace, %d of its pods", l.reads, l.looks)
	}
}
