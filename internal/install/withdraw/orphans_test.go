package withdraw

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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

func ofStatefulSet(uid string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: types.UID(uid), Controller: new(true)}
}

func heldFor(holders string, owners ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: "data-db-0", UID: "c", OwnerReferences: owners, Annotations: map[string]string{pvc.HoldersAnnotation: holders},
	}}
}

// A StatefulSet was deleted and made again at once, and runs on the claims of the life
// before, which their hold alone keeps from the garbage collector.
func TestClaimsInUseWhoseOwnersAreGoneAreFound(t *testing.T) {
	unserved := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Database", Name: "db", UID: "x"}
	for _, tt := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		want  int
	}{
		{"of the life before", heldFor("StatefulSet/db", ofStatefulSet("1")), 1},
		{"of this life", heldFor("StatefulSet/db", ofStatefulSet("2")), 0},
		{"of both", heldFor("StatefulSet/db", ofStatefulSet("1"), ofStatefulSet("2")), 0},
		{"of a kind that is not served", heldFor("StatefulSet/db", unserved), 0},
		{"held by nobody", heldFor("", ofStatefulSet("1")), 0},
		{"of nobody", heldFor("StatefulSet/db"), 0},
	} {
		owner := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "db", UID: "2"}}
		c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(tt.claim, owner).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				if kind := o.GetObjectKind().GroupVersionKind(); kind.Kind == "Database" {
					return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: kind.Group, Kind: kind.Kind}}
				}
				return c.Get(ctx, key, o, options...)
			},
		}).Build()
		got, err := Withdrawal{Client: c}.Orphans(t.Context())
		if err != nil || len(got) != tt.want {
			t.Errorf("%s: %v: %v", tt.name, got, err)
		}
		if len(got) > 0 {
			text := (&OrphanError{got}).Error()
			for _, part := range []string{"prod/data-db-0 (in use by StatefulSet/db; StatefulSet/db (UID 1), which owned it, is gone)", pvc.Disown, "wait for what uses it to end, or kubectl lockstep release pvc/NAME"} {
				if !strings.Contains(text, part) {
					t.Errorf("%q lacks %q", text, part)
				}
			}
		}
	}
}

// What is on its way out in the foreground waits for what it owns, which the garbage
// collector asks for all the time. Otherwise it goes first, and may be kept yet.
func TestAClaimInUseWhoseOwnerWaitsForItsEndIsFound(t *testing.T) {
	now := metav1.Now()
	for finalizer, want := range map[string]int{metav1.FinalizerDeleteDependents: 1, metav1.FinalizerOrphanDependents: 0, "example.com/backup": 0} {
		owner := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "db", UID: "1", DeletionTimestamp: &now, Finalizers: []string{finalizer}}}
		c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(heldFor("Pod/shell", ofStatefulSet("1")), owner).Build()
		got, err := Withdrawal{Client: c}.Orphans(t.Context())
		if err != nil || len(got) != want {
			t.Errorf("%s: %v: %v", finalizer, got, err)
		}
		if len(got) > 0 && !strings.Contains(got[0].String(), "StatefulSet/db (UID 1), which owned it, is being deleted with all that it owns") {
			t.Errorf("%s", got[0])
		}
	}
}

// A claim can say that it belongs to anything. It says nothing of another's owner.
func TestAnOwnerThatAStrangerMadeUpIsNotThatOfOthers(t *testing.T) {
	owner := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "db", UID: "2"}}
	strangers := heldFor("Pod/shell", ofStatefulSet("2"))
	strangers.Namespace = "attic" // which is read first
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(strangers, heldFor("StatefulSet/db", ofStatefulSet("2")), owner).Build()
	got, err := Withdrawal{Client: c}.Orphans(t.Context())
	if err != nil || len(got) != 1 || got[0].Claim.Namespace != "attic" {
		t.Errorf("%v: %v", got, err)
	}
}

func TestOwnersThatCannotBeReadStopAWithdrawal(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(heldFor("StatefulSet/db", ofStatefulSet("1"))).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("etcd has no leader")
		},
	}).Build()
	if got, err := (Withdrawal{Client: c}).Orphans(t.Context()); err == nil || !strings.Contains(err.Error(), `StatefulSet "db", which owns claim "prod/data-db-0"`) {
		t.Errorf("got %v: %v", got, err)
	}
}
