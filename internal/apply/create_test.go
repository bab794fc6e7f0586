package apply

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// applying is a client that notes the last apply and answers it.
type applying struct {
	client.Client
	fields string
	answer error
}

func (a *applying) Apply(_ context.Context, fields runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	sent, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	a.fields = string(sent)
	if a.answer != nil {
		return a.answer
	}
	return json.Unmarshal([]byte(`{"metadata":{"uid":"made","generation":1}}`), fields)
}

func makeStatefulSet() action.Create {
	return action.Create{
		Kind:   identity.KindStatefulSet,
		Object: &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w"}},
		Owner:  identity.Ref{Kind: identity.KindLeaderWorkerSet, Namespace: fakeapi.Namespace, Name: "w", UID: "owner"},
	}
}

// free has owners there, and no StatefulSet.
type free struct{ there }

func (f free) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if object.GetObjectKind().GroupVersionKind().Kind == string(identity.KindStatefulSet) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "statefulsets"}, key.Name)
	}
	return f.there.Get(ctx, key, object, opts...)
}

func TestAStatefulSetIsMadeByAnApplyThatCanOnlyCreate(t *testing.T) {
	writer := &applying{}
	done, err := New(writer, free{}).Do(t.Context(), makeStatefulSet())
	if err != nil || done != (Done{UID: "made", Generation: 1}) {
		t.Errorf("got %+v, %v", done, err)
	}
	metadata, _ := parsed(t, writer.fields)["metadata"].(map[string]any)
	if _, named := metadata["uid"]; named || metadata["resourceVersion"] != "1" {
		t.Errorf("an apply that may change what is there: %s", writer.fields)
	}
}

func TestAStatefulSetThatIsThereIsANameTaken(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "statefulsets"}, "w", errors.New("modified"))
	for name, live := range map[string]client.Reader{"before the look": there{}, "after the look": free{}} {
		writer := &applying{answer: conflict}
		_, err := New(writer, live).Do(t.Context(), makeStatefulSet())
		var taken *TakenError
		if !errors.As(err, &taken) || taken.Name.Name != "w" {
			t.Errorf("%s: got %v", name, err)
		}
		if tried := writer.fields != ""; tried != (name == "after the look") {
			t.Errorf("%s: tried %v", name, tried)
		}
	}
}

// A webhook that refuses as a conflict had a set look for who took its name, and try
// again, twenty times a second without end.
func TestAWebhookThatRefusesAsAConflictTookNoName(t *testing.T) {
	answer := deniedAs(apierrors.NewConflict(schema.GroupResource{Resource: "statefulsets"}, "w", nil))
	if _, err := New(&applying{answer: answer}, free{}).Do(t.Context(), makeStatefulSet()); errors.Is(err, ErrStale) || !errors.Is(err, answer) {
		t.Errorf("got %v", err)
	}
}

// counted counts live looks at owners.
type counted struct {
	free
	looks int
}

func (c *counted) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	err := c.free.Get(ctx, key, object, opts...)
	if err == nil {
		c.looks++
	}
	return err
}

func TestAnOwnerIsReadOnceAPass(t *testing.T) {
	live := &counted{}
	actor := New(&applying{}, live)
	for range 2 {
		pass := actor.Pass()
		for range 3 {
			if _, err := pass.Do(t.Context(), makeStatefulSet()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if live.looks != 2 {
		t.Errorf("%d live looks in two passes", live.looks)
	}
}

func TestAnOwnerFoundGoneIsReadAgain(t *testing.T) {
	store := fakeapi.New()
	pass := New(&applying{}, store.Live()).Pass()
	create := makeStatefulSet()
	if _, err := pass.Do(t.Context(), create); !errors.Is(err, ErrStale) {
		t.Errorf("got %v", err)
	}
	create.Owner = identity.RefOf(identity.KindLeaderWorkerSet, fakeapi.Add(store, fakeapi.Set("w", 1, 1)))
	if _, err := pass.Do(t.Context(), create); err != nil {
		t.Errorf("got %v", err)
	}
}

// Nothing is read before an apply that is known to meet its own fields only.
func TestAnApplyOntoAppliedFieldsIsOneRequest(t *testing.T) {
	live := &counted{}
	onto := identity.Ref{Kind: identity.KindStatefulSet, Namespace: fakeapi.Namespace, Name: "w", UID: "u", ResourceVersion: "7"}
	what := action.Apply{Object: &appsv1.StatefulSet{}, Onto: onto, FieldOwner: fieldOwner, Applied: true}
	if _, err := New(&applying{}, live).Do(t.Context(), what); err != nil || live.looks != 0 {
		t.Errorf("%d live looks, %v", live.looks, err)
	}
}

// A leader StatefulSet changes with every pod that its controller makes: a write that
// relies on others is held back before they are looked for, and before it is refused.
func TestAWriteThatReliesOnOthersIsNotTriedOntoAnotherVersion(t *testing.T) {
	store := fakeapi.New()
	sts := fakeapi.Add(store, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w"}})
	onto := identity.RefOf(identity.KindStatefulSet, sts)
	fakeapi.Edit(store, "w", func(sts *appsv1.StatefulSet) { sts.Status.Replicas++ })
	what := action.Apply{Object: &appsv1.StatefulSet{}, Onto: onto, FieldOwner: fieldOwner, Applied: true, Relies: []action.Standing{{Kind: identity.KindPod}}}
	if _, err := New(nil, store.Live()).Do(t.Context(), what); !errors.Is(err, ErrStale) {
		t.Errorf("got %v", err)
	}
}
