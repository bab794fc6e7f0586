package apply

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// deleted notes what a delete named.
type deleted struct {
	client.Client
	uid     types.UID
	version string
	calls   int
}

func (d *deleted) Delete(_ context.Context, _ client.Object, opts ...client.DeleteOption) error {
	d.calls++
	preconditions := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
	d.uid, d.version = *preconditions.UID, ""
	if preconditions.ResourceVersion != nil {
		d.version = *preconditions.ResourceVersion
	}
	return nil
}

// What belongs to a failed group goes whatever became of it since the look, but
// never another of its name; anything else goes only as it was judged.
func TestADeleteNamesTheIncarnationAndTheVersionUnlessAnyWillDo(t *testing.T) {
	pod := identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "a-0-1", UID: "u", ResourceVersion: "7"}
	for want, any := range map[string]bool{"7": false, "": true} {
		writer := &deleted{}
		if _, err := New(writer, nil).Do(t.Context(), action.Delete{Object: pod, AnyVersion: any}); err != nil {
			t.Fatal(err)
		}
		if writer.uid != "u" || writer.version != want {
			t.Errorf("any version %t: named %q at %q", any, writer.uid, writer.version)
		}
	}
}

func TestADeleteIsHeldBackWhenWhatItReliesOnMoved(t *testing.T) {
	survey := func(context.Context, action.Standing) ([]metav1.ObjectMeta, error) { return nil, nil }
	writer := &deleted{}
	relied := action.Standing{Kind: identity.KindStatefulSet, There: []types.UID{"gone"}}
	_, err := New(writer, nil).Surveying(survey).Do(t.Context(), action.Delete{Object: named("a-0"), Relies: []action.Standing{relied}})
	if !errors.Is(err, ErrStale) || writer.calls != 0 {
		t.Errorf("got %v after %d deletes", err, writer.calls)
	}
}

// missing has nothing to delete.
type missing struct{ client.Client }

func (missing) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a-0")
}

// Two operators, or two looks, delete the same leader: one of them did.
func TestADeleteOfWhatHasGoneIsNobodysDoing(t *testing.T) {
	if _, err := New(missing{}, nil).Do(t.Context(), action.Delete{Object: named("a-0")}); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
}
