package lws

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/test/fakeapi"
)

// leaseOf is a lease of 15 seconds that was renewed so long before epoch.
func leaseOf(namespace, holder string, ago time.Duration) *coordinationv1.Lease {
	renewed, duration := metav1.NewMicroTime(epoch.Add(-ago)), int32(15)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lease"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: &duration},
	}
}

// attended is a session that may read leases, unless "get" is forbidden, and reads a stored set.
func attended(leases []*coordinationv1.Lease, set *lwsv1.LeaderWorkerSet, forbidden ...string) *Session {
	builder := fake.NewClientBuilder().WithScheme(Scheme())
	for _, l := range leases {
		builder.WithObjects(l)
	}
	denied := func(verb string) error {
		if slices.Contains(forbidden, verb) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "lease", nil)
		}
		return nil
	}
	live := builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if stored, isSet := o.(*lwsv1.LeaderWorkerSet); isSet {
				set.DeepCopyInto(stored)
				return nil
			}
			if err := denied("get"); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	return &Session{Live: live, Lease: types.NamespacedName{Namespace: "home", Name: "lease"}}
}

// written is a set whose spec was written so long before epoch, and whose status after it.
func written(observed int64, ago time.Duration) *lwsv1.LeaderWorkerSet {
	set := fakeapi.Set("a", 1, 1)
	set.Generation, set.Status.ObservedGeneration = 2, observed
	entry := func(subresource, fields string, at time.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Subresource: subresource, Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	set.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("", `{"f:spec":{"f:replicas":{}}}`, epoch.Add(-time.Hour)),
		entry("scale", `{"f:spec":{"f:replicas":{}}}`, epoch.Add(-ago)),
		entry("status", `{"f:status":{}}`, epoch),
		entry("", `{"f:metadata":{"f:labels":{"f:spec":{}}}}`, epoch),
	}
	return set
}

func TestASetWithoutAnOperatorSaysSo(t *testing.T) {
	held, expired, released := leaseOf("home", "x", time.Second), leaseOf("home", "x", time.Minute), leaseOf("home", "", 0)
	for _, tt := range []struct {
		name      string
		leases    []*coordinationv1.Lease
		forbidden []string
		set       *lwsv1.LeaderWorkerSet
		want      string
	}{
		{"held", []*coordinationv1.Lease{held}, nil, written(2, time.Hour), ""},
		{"expired", []*coordinationv1.Lease{expired}, nil, written(2, time.Hour), CodeNoOperator},
		{"released", []*coordinationv1.Lease{released}, nil, written(2, time.Hour), CodeNoOperator},
		{"absent, as without leader election", nil, nil, written(2, time.Hour), ""},
		{"absent, and a spec is not observed", nil, nil, written(1, time.Hour), CodeNotObserved},
		{"not to be read", []*coordinationv1.Lease{expired}, []string{"get"}, written(2, time.Hour), ""},
		{"not to be read, and a spec is not observed", nil, []string{"get"}, written(1, 30*time.Second), CodeNotObserved},
		{"a spec is not observed", []*coordinationv1.Lease{held}, nil, written(1, 30*time.Second), CodeNotObserved},
		{"a spec is not observed yet", []*coordinationv1.Lease{held}, nil, written(1, 29*time.Second), ""},
		{"a spec without a time", []*coordinationv1.Lease{held}, nil, func() *lwsv1.LeaderWorkerSet {
			set := written(1, time.Hour)
			set.ManagedFields = nil
			return set
		}(), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cached := tt.set.DeepCopy()
			cached.ManagedFields = nil // the cache drops them
			got := codeOf(attended(tt.leases, tt.set, tt.forbidden...).unattended(t.Context(), cached, epoch))
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	replay := &Session{Live: attended(nil, nil).Live}
	if got := replay.unattended(t.Context(), written(1, time.Hour), epoch); got != nil {
		t.Errorf("without a lease to look for: got %v", got)
	}
}

func codeOf(why *action.Reason) string {
	if why == nil {
		return ""
	}
	return why.Code
}
