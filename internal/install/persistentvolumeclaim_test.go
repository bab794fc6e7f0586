package install

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"lockstep.dev/lockstep/internal/pvc"
)

func removalBy(c client.Client) *removal {
	return (&cluster{Options: Options{Timeout: time.Minute}, client: c}).removal(nil)
}

// A StatefulSet that was deleted and created again runs on PVCs whose owner is gone. Their
// hold alone keeps them from the garbage collector.
func TestPVCsInUseWhoseOwnersAreGoneBlock(t *testing.T) {
	owned := func(uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: types.UID(uid), Controller: new(true)}
	}
	unserved := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Database", Name: "db", UID: "x"}
	for name, tt := range map[string]struct {
		holders   string
		owners    []metav1.OwnerReference
		finalizer string // of an owner that is being deleted
		blocks    bool
	}{
		"of an earlier incarnation":    {"StatefulSet/db", []metav1.OwnerReference{owned("1")}, "", true},
		"of this incarnation":          {"StatefulSet/db", []metav1.OwnerReference{owned("2")}, "", false},
		"of both":                      {"StatefulSet/db", []metav1.OwnerReference{owned("1"), owned("2")}, "", false},
		"of a kind that is not served": {"StatefulSet/db", []metav1.OwnerReference{unserved}, "", false},
		"not held":                     {"", []metav1.OwnerReference{owned("1")}, "", false},
		"without an owner":             {"StatefulSet/db", nil, "", false},
		"deleted in the foreground":    {"Pod/shell", []metav1.OwnerReference{owned("2")}, metav1.FinalizerDeleteDependents, true},
		"orphaned":                     {"Pod/shell", []metav1.OwnerReference{owned("2")}, metav1.FinalizerOrphanDependents, false},
	} {
		owner := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "db", UID: "2"}}
		if tt.finalizer != "" {
			owner.DeletionTimestamp, owner.Finalizers = &metav1.Time{Time: time.Now()}, []string{tt.finalizer}
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "data-db-0", UID: "c", OwnerReferences: tt.owners, Annotations: map[string]string{pvc.HoldersAnnotation: tt.holders},
		}}
		c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(claim, owner).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				if o.GetObjectKind().GroupVersionKind().Kind == "Database" {
					return &meta.NoKindMatchError{}
				}
				return c.Get(ctx, key, o, options...)
			},
		}).Build()
		err := removalBy(c).refuse(t.Context())
		if (err != nil) != tt.blocks {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range []string{"prod/data-db-0", "in use by " + tt.holders, "StatefulSet/db", pvc.Disown} {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", name, err, part)
			}
		}
	}
}

func TestOwnersThatCannotBeReadBlock(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: "data", Annotations: map[string]string{pvc.HoldersAnnotation: "Pod/x"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "1"}},
	}}
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(claim).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("etcd has no leader")
		},
	}).Build()
	if err := removalBy(c).refuse(t.Context()); err == nil || !strings.Contains(err.Error(), `StatefulSet "db", which owns PVC "prod/data"`) {
		t.Errorf("got %v", err)
	}
}

// probed answers dry runs of PVCs in order, and repeats its last answer.
type probed struct {
	client.Client
	answers []error
}

// The answers that are no errors of an API server.
var errBarrier, errBare = errors.New("with the barrier"), errors.New("without it")

func (p *probed) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	answer := p.answers[0]
	p.answers = p.answers[min(1, len(p.answers)-1):]
	switch {
	case errors.Is(answer, errBarrier):
		o.SetFinalizers([]string{pvc.BarrierFinalizer})
		return nil
	case errors.Is(answer, errBare):
		return nil
	}
	return answer
}

func TestUninstallWaitsUntilNewPVCsGetNoFinalizer(t *testing.T) {
	unwell, forbidden := apierrors.NewInternalError(errors.New("etcd has no leader")), apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for name, c := range map[string]struct {
		answers []error
		fails   bool
	}{
		"without":              {[]error{errBare}, false},
		"with, then without":   {[]error{errBarrier, errBarrier, errBare}, false},
		"always with":          {[]error{errBarrier}, true},
		"not permitted":        {[]error{forbidden}, false},
		"error, then with":     {[]error{unwell, errBarrier}, true},
		"errors, then without": {[]error{unwell, unwell, errBare}, false},
		"with, then errors":    {[]error{errBarrier, unwell}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := removalBy(&probed{answers: c.answers}).untilNoFinalizers(t.Context()); (err != nil) != c.fails {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}
