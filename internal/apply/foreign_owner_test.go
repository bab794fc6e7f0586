package apply

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// nothing has no objects, and notes the kind last looked for.
type nothing struct {
	client.Reader
	looked schema.GroupVersionKind
}

func (n *nothing) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	n.looked = object.GetObjectKind().GroupVersionKind()
	return apierrors.NewNotFound(schema.GroupResource{}, "")
}

// An owner of a foreign kind was looked for among the core kinds: the look failed,
// or, worse, found that the wrong thing was gone.
func TestAForeignOwnerIsLookedForUnderItsOwnGroup(t *testing.T) {
	owner := identity.OwnerRef(fakeapi.Namespace, metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "w", UID: "u"})
	live := &nothing{}
	if _, err := New(&asked{}, live).Do(t.Context(), action.Delete{Object: named("w-0"), OwnerGone: &owner}); err != nil {
		t.Fatal(err)
	}
	if want := schema.FromAPIVersionAndKind("apps.kruise.io/v1beta1", "StatefulSet"); live.looked != want {
		t.Errorf("looked for %s", live.looked)
	}
}
