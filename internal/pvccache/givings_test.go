package pvccache

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"lockstep.dev/lockstep/internal/pvc"
)

// noted is a claim that says when it was last written by who gave it to a StatefulSet.
func noted(uid, owner types.UID, at time.Time) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "data-llama-0", UID: uid,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "llama", UID: owner, Controller: new(true)}},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Time: new(metav1.NewTime(at)),
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"` + string(owner) + `\"}":{}}}}`),
		}},
	}}
}

// A claim is bound to its volume by who gave it to its StatefulSet, and says no more when
// that was: who saw it before knows. Of a set that was deleted and made again meanwhile it
// would be held, and the set wait for its end for ever.
func TestWhenAClaimWasGivenAwayIsRememberedOnceItIsBound(t *testing.T) {
	given := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	bound := given.Add(time.Minute)
	other := noted("c", "other", bound)
	silent := noted("c", "life-1", given)
	silent.ManagedFields = nil
	for name, tt := range map[string]struct {
		events func(toolscache.ResourceEventHandlerFuncs)
		is     *corev1.PersistentVolumeClaim
		want   time.Time
	}{
		"not seen before": {func(h toolscache.ResourceEventHandlerFuncs) { h.OnAdd(noted("c", "life-1", bound), false) }, noted("c", "life-1", bound), bound},
		"bound": {func(h toolscache.ResourceEventHandlerFuncs) {
			h.OnUpdate(noted("c", "life-1", given), noted("c", "life-1", bound))
		}, noted("c", "life-1", bound), given},
		"bound, and written again": {func(h toolscache.ResourceEventHandlerFuncs) {
			h.OnUpdate(noted("c", "life-1", given), noted("c", "life-1", bound))
			h.OnUpdate(noted("c", "life-1", bound), noted("c", "life-1", bound.Add(time.Minute)))
		}, noted("c", "life-1", bound.Add(time.Minute)), given},
		"relieved of what it said": {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(noted("c", "life-1", given), silent) }, silent, given},
		"given to another":         {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(noted("c", "life-1", given), other) }, other, bound},
		"given to another later": {func(h toolscache.ResourceEventHandlerFuncs) {
			h.OnUpdate(noted("c", "life-1", given), noted("c", "life-1", bound))
			h.OnUpdate(noted("c", "life-1", bound), other)
		}, other, bound},
		"made again": {func(h toolscache.ResourceEventHandlerFuncs) {
			h.OnUpdate(noted("c", "life-1", given), noted("c", "life-1", bound))
			h.OnUpdate(noted("c", "life-1", bound), noted("d", "life-1", bound))
		}, noted("d", "life-1", bound), bound},
	} {
		claims := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				if claim, ok := o.(*corev1.PersistentVolumeClaim); ok {
					tt.is.DeepCopyInto(claim)
					return nil
				}
				return c.Get(ctx, key, o, options...)
			},
		}).Build()
		h := NewHolds(nil, NewClaims(claims, claims), NewPods(), emptyDesired(t), pvc.Settings{}, 0)
		handler := Followers{
			Claim: func(types.NamespacedName) {}, Namespace: func(string) {}, Gone: func(*corev1.PersistentVolumeClaim) {},
		}.claims(h.givings.note)
		tt.events(handler)
		view, err := h.View(t.Context(), types.NamespacedName{Namespace: "ns", Name: "data-llama-0"}, bound)
		if err != nil {
			t.Fatal(err)
		}
		if _, at, _ := pvc.GivenBy(view.Claim); !at.Equal(tt.want) {
			t.Errorf("%s: given by %s, want %s", name, at, tt.want)
		}
		handler.OnDelete(tt.is)
		if left := len(h.givings.known); left > 0 {
			t.Errorf("%s: of %d claims something is remembered that are gone", name, left)
		}
	}
}
