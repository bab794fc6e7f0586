package apply

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/lwstest"
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
	for name, change := range map[string]func(*lwstest.FakeStore){
		"gone":       func(s *lwstest.FakeStore) { lwstest.Drop[*corev1.Pod](s, "w-0") },
		"on its way": func(s *lwstest.FakeStore) { lwstest.Terminate[*corev1.Pod](s, "w-0") },
	} {
		store := lwstest.NewStore()
		owner := identity.RefOf(identity.KindPod, lwstest.Add(store, lwstest.Pod("w-0", "w", 0)))
		change(store)
		if _, err := New(nil, store.Live()).Do(t.Context(), action.Tie{To: &owner}); !errors.Is(err, ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Once a StatefulSet is wanted larger again, nobody is the last leader of a group.
func TestNothingIsTiedForAScalingDownThatIsTakenBack(t *testing.T) {
	store := lwstest.NewStore()
	sts := lwstest.Add(store, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: lwstest.Namespace, Name: "w", Generation: 2}})
	volume := identity.Ref{Kind: identity.KindPersistentVolumeClaim, Namespace: lwstest.Namespace, Name: "data-w-1-1", UID: "u", ResourceVersion: "7"}
	for generation, stale := range map[int64]bool{sts.Generation: false, sts.Generation - 1: true} {
		writer := &patched{}
		actor := New(writer, store.Live()).Surveying(func(context.Context, action.Standing) ([]metav1.ObjectMeta, error) {
			return []metav1.ObjectMeta{sts.ObjectMeta}, nil
		})
		lowered := action.Standing{Kind: identity.KindStatefulSet, Specified: map[types.UID]int64{sts.UID: generation}}
		_, err := actor.Do(t.Context(), action.Tie{Object: volume, Relies: []action.Standing{lowered}})
		if errors.Is(err, ErrStale) != stale || (writer.document == "") != stale {
			t.Errorf("judged at %d and now at %d: %v, wrote %q", generation, sts.Generation, err, writer.document)
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
