package act

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// deleted notes what a delete named, and prunes what it is told to.
type deleted struct {
	client.Client
	uid     types.UID
	version string
	calls   int
	prunes  bool
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

func (d *deleted) Status() client.SubResourceWriter { return answering{prunes: d.prunes} }

type answering struct {
	client.SubResourceWriter
	prunes bool
}

func (a answering) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	if set, ok := object.(*lwsv1.LeaderWorkerSet); ok && a.prunes {
		set.Status.RestartsSince = nil
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

// A server with an older definition drops what it does not know, without a word.
func TestAStatusThatIsPrunedIsNoticed(t *testing.T) {
	for _, prunes := range []bool{false, true} {
		what := action.WriteStatus{Status: lwsv1.LeaderWorkerSetStatus{RestartsSince: &metav1.Time{}}}
		done, err := New(&deleted{prunes: prunes}, nil).Do(t.Context(), what)
		if err != nil || done.Pruned != prunes {
			t.Errorf("it prunes: %t; noticed %t, %v", prunes, done.Pruned, err)
		}
	}
}
