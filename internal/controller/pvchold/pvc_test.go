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
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/turn"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// world is the controllers, an API server, and caches that may be late.
type world struct {
	*testing.T
	*pass
	api    *fakeapi.Shared
	events *events.FakeRecorder
	// refuse, when set, may refuse a request.
	refuse func(verb string, of fakeapi.Name) error
}

func newWorld(t *testing.T, cached ...client.Object) *world {
	w := &world{T: t, api: fakeapi.NewShared(cached...), events: events.NewFakeRecorder(100)}
	w.api.Fail = func(verb string, of fakeapi.Name) error {
		if w.refuse != nil {
			if err := w.refuse(verb, of); err != nil {
				return err
			}
		}
		if verb == "list" && of.Kind != "Pod" && of.Kind != "StatefulSet" {
			return apierrors.NewNotFound(schema.GroupResource{}, string(of.Kind))
		}
		return nil
	}
	elected := make(chan struct{})
	close(elected)
	w.pass = &pass{elected: elected, Options: Options{
		Holds: &pvccache.Holds{
			Caches: w.api.Caches(), Pods: pvccache.NewPods(nil, nil), Workloads: &pvccache.Workloads{}, Grace: time.Minute,
			Settings: pvc.Settings{Mode: pvc.Barrier}, Reader: pvccache.Reader{Live: w.api, Served: noneServed},
		},
		Actor: apply.New(w.api, w.api), Report: report.NewHolds(report.New(w.events)), ReleaseTTL: time.Hour,
		Now: func() time.Time { return noon },
	}}
	return w
}

func noneServed(context.Context, schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	return schema.GroupVersionResource{}, nil
}

// add adds objects that the caches do not show if they are late.
func (w *world) add(objects ...client.Object) {
	w.api.Do(func(s *fakeapi.Server) {
		for _, object := range objects {
			s.Put(object.DeepCopyObject().(client.Object))
		}
	})
}

// reconcile judges a PVC, and returns it as it is then, or nil.
func (w *world) reconcile(name string) (claim *corev1.PersistentVolumeClaim, err error) {
	_, err = w.reconcilePVC(w.Context(), types.NamespacedName{Namespace: "ns", Name: name})
	w.api.Do(func(s *fakeapi.Server) { claim = fakeapi.Find[*corev1.PersistentVolumeClaim](s, name) })
	return claim, err
}

func namespace(uid types.UID, mode string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: uid, Labels: map[string]string{pvc.ModeKey: mode}}}
}

// held is a PVC with annotations.
func held(name string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), Finalizers: []string{pvc.PodsFinalizer, pvc.BarrierFinalizer}, Annotations: annotations,
	}}
}

var byHand = map[string]string{pvc.HoldAnnotation: "mine", pvc.HoldersAnnotation: "Hold/data"}

func isHeld(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.DeletionTimestamp == nil && claim.Annotations[pvc.HoldersAnnotation] != ""
}

// Caches may be of an earlier incarnation of the namespace, and lack holders. Only a live read
// ends a hold.
func TestOnlyALiveReadEndsAHold(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", UID: "db"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shell", UID: "shell"}}
	user.Spec.NodeName, user.Spec.Volumes = "node", fakeapi.Using("data-db-0")
	cooled := pvc.HoldersValue{Names: "Pod/old", Until: noon.Add(-time.Hour)}.String()
	for name, tt := range map[string]struct {
		holders, cached string
		live            []client.Object
		unread          string
		held            bool
	}{
		"not held":                   {cooled, "hold", []client.Object{namespace("1", "hold")}, "", false},
		"by a workload":              {cooled, "hold", []client.Object{namespace("1", "hold"), set}, "", true},
		"by a pod":                   {cooled, "hold", []client.Object{namespace("1", "hold"), user}, "", true},
		"unverified, and not held":   {pvc.Unverified, "hold", []client.Object{namespace("1", "hold")}, "", false},
		"unverified, and held":       {pvc.Unverified, "hold", []client.Object{namespace("1", "hold"), set}, "", true},
		"the namespace is unread":    {cooled, "hold", []client.Object{namespace("1", "hold")}, "Namespace", true},
		"the pods are unread":        {cooled, "hold", []client.Object{namespace("1", "hold")}, "Pod", true},
		"the mode was turned up":     {"Hold/x", "off", []client.Object{namespace("1", "hold"), set}, "", true},
		"the mode is off, live also": {"Hold/x", "off", []client.Object{namespace("1", "off"), set}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, namespace("1", tt.cached), held("data-db-0", map[string]string{pvc.HoldersAnnotation: tt.holders}))
			w.api.Late(true)
			w.add(tt.live...)
			w.refuse = func(_ string, of fakeapi.Name) error {
				if tt.unread != "" && string(of.Kind) == tt.unread {
					return errors.New("unread")
				}
				return nil
			}
			got, err := w.reconcile("data-db-0")
			expect.Equalf(t, tt.held, isHeld(got), "held")
			expect.Equalf(t, tt.unread != "", err != nil, "%v", err)
		})
	}
}

func TestANamespaceCreatedAgainKeepsItsPVCs(t *testing.T) {
	released := namespace("1", "hold")
	released.Annotations, released.DeletionTimestamp = map[string]string{pvc.ReleaseAnnotation: "1"}, &metav1.Time{Time: noon}
	w := newWorld(t, released, held("data", byHand))
	w.api.Late(true)
	w.add(namespace("2", "hold"))
	claim, err := w.reconcile("data")
	expect.That(t, err == nil && isHeld(claim), "a PVC of a living namespace was given up: %v, %+v", err, claim)
}

func TestAPVCThatStaysHeldCostsNoLiveRead(t *testing.T) {
	w := newWorld(t, namespace("1", "hold"), held("data", byHand))
	expect.Value(w.reconcile("data"))(t)
	n := w.api.Requests("get", "Namespace") + w.api.Requests("list", "Pod")
	expect.That(t, n == 0, "%d live reads", n)
}

// A refusal to delete a PVC is an ordinary failure: it is retried with back-off. A change is
// read again at once.
func TestADeletionThatIsRefusedIsRetried(t *testing.T) {
	asked := held("data", map[string]string{pvc.IntentAnnotation: "data"})
	for name, tt := range map[string]struct {
		err    error
		failed bool
		again  time.Duration
	}{
		"forbidden": {apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data", errors.New("held by others")), true, 0},
		"changed":   {apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), "data", errors.New("changed")), false, lookAgain},
		"gone":      {apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), "data"), false, 0},
	} {
		w := newWorld(t, namespace("1", "hold"), asked)
		w.refuse = func(verb string, _ fakeapi.Name) error {
			if verb == "delete" {
				return tt.err
			}
			return nil
		}
		result, err := w.reconcilePVC(t.Context(), client.ObjectKeyFromObject(asked))
		expect.Equalf(t, tt.failed, err != nil, "%s: %v", name, err)
		expect.Equalf(t, tt.again, result.RequeueAfter, "%s", name)
		w.refuse = nil
		if claim, err := w.reconcile("data"); err != nil || claim.DeletionTimestamp == nil {
			t.Errorf("%s: then the PVC is not deleted: %v", name, err)
		}
	}
	limiter, request := turn.Options(workers).RateLimiter, ctrl.Request{}
	for range 100 {
		limiter.When(request)
	}
	expect.Equalf(t, turn.RetryAtMost, limiter.When(request), "the longest back-off")
}

// Each replica follows events, so that it can take over at once. Only the one with the lease
// reports them.
func TestAReplicaWithoutTheLeaseReportsNothing(t *testing.T) {
	w := newWorld(t)
	elected := make(chan struct{})
	w.elected = elected
	ending := pvccache.NewNamespace("ns")
	ending.UID, ending.DeletionTimestamp = "n", &metav1.Time{Time: noon}
	ending.Annotations = map[string]string{pvc.HeldClaimsAnnotation: "2", pvc.ReleaseAnnotation: "n"}
	tell := func() int {
		w.ends(pvccache.NewNamespace("ns"), ending)
		w.went(held("c", map[string]string{pvc.HoldersAnnotation: "StatefulSet/db", pvc.ReleaseAnnotation: "c"}), nil)
		return len(w.events.Events)
	}
	expect.Equalf(t, 0, tell(), "events without the lease")
	close(elected)
	told := tell()
	expect.That(t, told >= 2, "%d events with the lease", told)
}

// counted is how many PVCs are counted as held.
func counted(t *testing.T) int {
	return int(fakeapi.Metrics(t, report.HoldMetrics()...)["protection_claim_states "+string(pvc.Held)])
}

func TestAPVCThatIsGoneIsNotCounted(t *testing.T) {
	w := newWorld(t, namespace("1", "hold"), held("stays", byHand), held("goes", byHand))
	before := counted(t)
	for _, name := range []string{"stays", "goes", "goes"} {
		if claim, err := w.reconcile(name); err != nil {
			t.Fatal(err)
		} else if name == "goes" && claim != nil {
			w.api.Do(func(s *fakeapi.Server) { s.Erase(claim) })
		}
	}
	expect.Equalf(t, 1, counted(t)-before, "the count of the PVC that stays")
}
