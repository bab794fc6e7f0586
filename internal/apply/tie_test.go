package apply

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestATieNamesTheVersionAndReplacesTheOwners(t *testing.T) {
	volume := identity.Ref{Kind: identity.KindPersistentVolumeClaim, Namespace: "ns", Name: "data-w-0-1", UID: "u", ResourceVersion: "7"}
	for want, owners := range map[string][]metav1.OwnerReference{
		`{"metadata":{"ownerReferences":[],"resourceVersion":"7","uid":"u"}}`: nil,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"w-0","uid":"p"}],"resourceVersion":"7","uid":"u"}}`: {
			{APIVersion: "v1", Kind: "Pod", Name: "w-0", UID: "p"},
		},
	} {
		writer := &patched{}
		if _, err := New(writer, nil).Do(t.Context(), action.Tie{Object: volume, Owners: owners}); err != nil {
			t.Fatal(err)
		}
		if writer.document != want || !writer.waits {
			t.Errorf("got %s, waits %v", writer.document, writer.waits)
		}
	}
}

// A claim tied to what is gone would be taken by the garbage collector at once.
func TestNothingIsTiedToAnOwnerThatIsNotAlive(t *testing.T) {
	for name, change := range map[string]func(*fakeapi.Server){
		"gone":       func(s *fakeapi.Server) { fakeapi.Drop[*corev1.Pod](s, "w-0") },
		"on its way": func(s *fakeapi.Server) { fakeapi.Terminate[*corev1.Pod](s, "w-0") },
	} {
		store := fakeapi.New()
		owner := identity.RefOf(identity.KindPod, fakeapi.Add(store, fakeapi.Pod("w-0", "w", 0)))
		change(store)
		if _, err := New(nil, store.Live()).Do(t.Context(), action.Tie{To: &owner}); !errors.Is(err, ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Tied again at once, it would be so for ever.
func TestATieThatAWebhookUndoesIsAnError(t *testing.T) {
	writer := &patched{answer: `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"w-0","uid":"s"}]}}`}
	volume := identity.Ref{Kind: identity.KindPersistentVolumeClaim, Namespace: "ns", Name: "data-w-0-1", UID: "u", ResourceVersion: "7"}
	_, err := New(writer, nil).Do(t.Context(), action.Tie{Object: volume})
	if err == nil || errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "StatefulSet w-0") {
		t.Errorf("got %v", err)
	}
}
