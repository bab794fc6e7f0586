package apply

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// asked is a client that notes whether a write asks later reads to wait for it.
type asked struct {
	client.Client
	waits  bool
	answer error
}

func (a *asked) Create(_ context.Context, _ client.Object, opts ...client.CreateOption) error {
	a.waits = !(&client.CreateOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency
	return a.answer
}

func (a *asked) Delete(_ context.Context, _ client.Object, opts ...client.DeleteOption) error {
	a.waits = !(&client.DeleteOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency
	return a.answer
}

// there answers every live look with the owner that create looks for.
type there struct{ client.Reader }

func (there) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetUID("owner")
	return nil
}

// The cache hides what does not bear our label, and may miss that a name changed
// hands. A look that waited to see such an object leave would wait for ever, and
// with it the look of every other set: lists wait for all deletes of a kind.
func TestNoLookWaitsToSeeADeletedObjectLeave(t *testing.T) {
	writer := &asked{}
	if _, err := New(writer, there{}).Do(t.Context(), action.Delete{Object: named("a-0")}); err != nil {
		t.Fatal(err)
	}
	if writer.waits {
		t.Error("reads wait for the delete to show in a cache that may never show it")
	}
}

func makeClaim() action.Create {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "data-a-2"}}
	owner := identity.Ref{Kind: identity.KindStatefulSet, Namespace: fakeapi.Namespace, Name: "a", UID: "owner"}
	return action.Create{Kind: identity.KindPersistentVolumeClaim, Object: claim, Owner: owner}
}

// A write that later reads wait for starts a cache of its kind: of every claim in
// the cluster, which nobody reads and the operator may not watch.
func TestMakingAClaimStartsNoCacheOfClaims(t *testing.T) {
	writer := &asked{}
	if _, err := New(writer, there{}).Do(t.Context(), makeClaim()); err != nil {
		t.Fatal(err)
	}
	if writer.waits {
		t.Error("reads wait for the claim to show in a cache")
	}
}

// A claim made beforehand by somebody else was taken for a name conflict, and
// the set looked again and again, hundreds of times a second, for ever.
func TestAClaimThatIsThereAlreadyServes(t *testing.T) {
	writer := &asked{answer: apierrors.NewAlreadyExists(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data-a-2")}
	if _, err := New(writer, there{}).Do(t.Context(), makeClaim()); err != nil {
		t.Error(err)
	}
}
