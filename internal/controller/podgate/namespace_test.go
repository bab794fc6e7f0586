package podgate

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

// reading is a cache that shows what a reader does.
type reading struct {
	cache.Cache
	client.Reader
}

func (r reading) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return r.Reader.Get(ctx, key, o, options...)
}

func (r reading) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return r.Reader.List(ctx, list, options...)
}

func namespaceIn(mode string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "n", Labels: map[string]string{pvc.ModeKey: mode}}}
}

// seenTo has a gated pod seen to where the caches show the namespace otherwise, and
// returns whether its gate is lifted, and what is on record on its claim.
func seenTo(t *testing.T, cached []client.Object, objects ...client.Object) (lifted bool, record string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "p"}, Spec: corev1.PodSpec{
		SchedulingGates: []corev1.PodSchedulingGate{{Name: pvc.UseGate}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}},
	}}
	live := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(append(objects, pod)...).Build()
	r := New(Options{
		Settings: pvc.Settings{Mode: pvc.Off}, Gated: pvccache.GatedIn(reading{nil, live}),
		Claims: pvccache.NewClaims(fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(cached...).Build(), live),
		Actor:  apply.New(live, live), Narrator: report.NewProtection(events.NewFakeRecorder(10), time.Now, func() int { return 0 }),
	})
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}); err != nil {
		t.Fatal(err)
	}
	if err := live.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "data"}, claim); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return len(pod.Spec.SchedulingGates) == 0, claim.Annotations[pvc.UsersAnnotation]
}

func TestNoGateIsLiftedByWhatACacheSaysOfTheNamespace(t *testing.T) {
	data := func() client.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "c"}}
	}
	for _, tt := range []struct {
		name    string
		cached  []client.Object
		objects []client.Object
		lifts   bool
		record  string
	}{
		{"unseen", nil, []client.Object{namespaceIn("strict"), data()}, true, "web=p"},
		{"changed just now", []client.Object{namespaceIn("off")}, []client.Object{namespaceIn("strict"), data()}, true, "web=p"},
		{"unseen, and the claim is yet to come", nil, []client.Object{namespaceIn("strict")}, false, ""},
		{"strict no more", []client.Object{namespaceIn("off")}, []client.Object{namespaceIn("off"), data()}, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lifted, record := seenTo(t, tt.cached, tt.objects...)
			if lifted != tt.lifts || record != tt.record {
				t.Errorf("lifted: %t, with %q on record; want %t, %q", lifted, record, tt.lifts, tt.record)
			}
		})
	}
}
