package withdraw

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"lockstep.dev/lockstep/internal/pvc"
)

// slow is a cluster in which a claim on its way out waits for the built-in controller,
// and whose API server takes so long for a list.
func slow(takes time.Duration) client.Client {
	leaving := metav1.Now()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: "data", UID: "u", DeletionTimestamp: &leaving,
		Finalizers: []string{pvc.PodsFinalizer, pvc.BarrierFinalizer},
	}}
	return fake.NewClientBuilder().WithObjects(claim).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(takes):
				return c.List(ctx, list, options...)
			}
		},
	}).Build()
}

// A removal that believes that nothing is left goes on to remove what claims rely on.
func TestTheEndOfAWaitMakesNoClaimSettled(t *testing.T) {
	for name, takes := range map[string]time.Duration{
		"cut off in a later look":   130 * time.Millisecond,
		"cut off in the first look": 2 * time.Minute,
		"cut off between two looks": 0,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left, err := Withdrawal{Client: slow(takes), Patience: time.Minute}.Settled(t.Context())
				if err == nil && len(left) != 1 {
					t.Errorf("got %v, want the claim that is left, or an error", left)
				}
			})
		})
	}
}
