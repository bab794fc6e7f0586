package podgate

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func namespace(mode string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "n", Labels: map[string]string{pvc.ModeKey: mode}}}
}

func data(annotations map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "c", Annotations: annotations}}
}

func gated() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "p"}, Spec: corev1.PodSpec{
		SchedulingGates: []corev1.PodSchedulingGate{{Name: pvc.UseGate}},
		Volumes:         fakeapi.Using("data"),
	}}
}

// reconciler returns a Reconciler whose informer shows the gated pod.
func reconciler(t *testing.T, api *fakeapi.Shared) *Reconciler {
	t.Helper()
	pod := &corev1.Pod{}
	expect.OK(t, api.Get(t.Context(), client.ObjectKeyFromObject(gated()), pod))
	pods := pvccache.NewPods(nil, nil)
	expect.OK(t, pods.Store().Add(pvccache.UsesOf(pod)))
	return &Reconciler{
		Settings: pvc.Settings{Mode: pvc.Off}, Pods: pods, Live: api, Actor: apply.New(api, api),
		Report: report.NewProtection(events.NewFakeRecorder(10), time.Now, func() int { return 0 }),
	}
}

// The caches may show another mode of the namespace, or nothing of it.
func TestAPodIsRecordedBeforeItsGateIsRemoved(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("guarded"))
	changed := apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), "data", errors.New("changed"))
	for _, tt := range []struct {
		name    string
		cached  *corev1.Namespace
		live    []client.Object
		refused map[string]error // by kind
		lifted  bool
		record  string
		again   time.Duration
		failed  bool
	}{
		{"unseen namespace", nil, []client.Object{namespace("strict"), data(nil)}, nil, true, "web=p", 0, false},
		{"strict since just now", namespace("off"), []client.Object{namespace("strict"), data(nil)}, nil, true, "web=p", 0, false},
		{"no PVC yet", nil, []client.Object{namespace("strict")}, nil, false, "", waitAtMost, false},
		{"strict no more", namespace("strict"), []client.Object{namespace("off"), data(nil)}, nil, true, "", 0, false},
		{"the PVC changed", nil, []client.Object{namespace("strict"), data(nil)}, map[string]error{"PersistentVolumeClaim": changed}, false, "", lookAgain, false},
		{"the record is forbidden", nil, []client.Object{namespace("strict"), data(nil)}, map[string]error{"PersistentVolumeClaim": forbidden}, false, "", 0, true},
		{"the removal is forbidden", nil, []client.Object{namespace("strict"), data(nil)}, map[string]error{"Pod": forbidden}, false, "web=p", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := fakeapi.NewShared(gated())
			if tt.cached != nil {
				api.Do(func(s *fakeapi.Server) { s.Put(tt.cached) })
			}
			api.Late(true)
			api.Do(func(s *fakeapi.Server) {
				for _, object := range tt.live {
					s.Put(object)
				}
			})
			api.Fail = func(verb string, of fakeapi.Name) error {
				if verb == "patch" {
					return tt.refused[string(of.Kind)]
				}
				return nil
			}
			result, err := reconciler(t, api).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(gated())})
			expect.Equalf(t, tt.failed, err != nil, "%v", err)
			expect.Equal(t, tt.again, result.RequeueAfter)
			pod, claim := &corev1.Pod{}, &corev1.PersistentVolumeClaim{}
			expect.OK(t, api.Get(t.Context(), client.ObjectKeyFromObject(gated()), pod))
			_ = api.Get(t.Context(), client.ObjectKeyFromObject(data(nil)), claim)
			expect.Equalf(t, tt.lifted, len(pod.Spec.SchedulingGates) == 0, "lifted")
			expect.Equalf(t, tt.record, claim.Annotations[pvc.UsersAnnotation], "the record")
		})
	}
}
