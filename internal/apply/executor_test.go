package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

func named(name string) identity.Ref {
	return identity.Ref{Kind: identity.KindPod, Namespace: fakeapi.Namespace, Name: name, UID: "u", ResourceVersion: "1"}
}

func shape(runs [][]action.Action) (sizes []int) {
	for _, run := range runs {
		sizes = append(sizes, len(run))
	}
	return sizes
}

func TestOnlyNeighbouringDeletesGoTogether(t *testing.T) {
	remove, write, apply := action.Delete{Object: named("a")}, action.WriteStatus{}, action.Apply{}
	make, any := action.Create{Object: &corev1.Pod{}}, action.Delete{Object: named("b"), AnyVersion: true}
	after := action.Delete{Object: named("a"), After: true}
	beside := action.Delete{Object: identity.Ref{Kind: identity.KindStatefulSet, Name: "a"}, Beside: true}
	tests := []struct {
		actions []action.Action
		want    []int
	}{
		{nil, nil},
		{[]action.Action{remove, remove, remove}, []int{3}},
		{[]action.Action{make, make}, []int{1, 1}},
		{[]action.Action{remove, apply, remove, remove, write}, []int{1, 1, 2, 1}},
		{[]action.Action{any, any, remove}, []int{3}}, // a group's leader goes with its workers
		{[]action.Action{any, any, after}, []int{2, 1}},
		{[]action.Action{remove, beside, any, any}, []int{2, 2}}, // a group's StatefulSet goes with its leader, and before its workers
		{[]action.Action{apply, beside, write, beside}, []int{1, 1, 1, 1}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, shape(Batch(tt.actions))); diff != "" {
			t.Errorf("%v (-want +got)\n%s", tt.actions, diff)
		}
	}
}

func TestBatchKeepsEveryActionInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var actions []action.Action
		for i, remove := range rapid.SliceOf(rapid.Bool()).Draw(t, "deletes") {
			if remove {
				actions = append(actions, action.Delete{Object: named(fmt.Sprint(i))})
				continue
			}
			actions = append(actions, action.Apply{Onto: named(fmt.Sprint(i))})
		}
		var again []action.Action
		for _, run := range Batch(actions) {
			again = append(again, run...)
		}
		if diff := cmp.Diff(actions, again); diff != "" {
			t.Fatalf("(-in +out)\n%s", diff)
		}
	})
}

func TestSlowStartBeginsWithOneAndDoubles(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		run, failAt int // failAt counts calls from 0; -1 for never
		want        int
	}{
		{0, -1, 0}, {1, -1, 1}, {10, -1, 10},
		{10, 0, 1}, // costs one call
		{10, 1, 3}, {10, 2, 3}, {10, 3, 7}, {100, 7, 15},
	}
	for _, tt := range tests {
		var mu sync.Mutex
		calls := 0
		err := SlowStart(context.Background(), run(tt.run), func(_ context.Context, a action.Action) error {
			mu.Lock()
			defer mu.Unlock()
			calls++
			if a.Target().Name == fmt.Sprint(tt.failAt) {
				return boom
			}
			return nil
		})
		if calls != tt.want || errors.Is(err, boom) != (tt.failAt >= 0) {
			t.Errorf("%d actions, failing at %d: %d calls, %v; want %d", tt.run, tt.failAt, calls, err, tt.want)
		}
	}
}

// The pods of a group that ends do not wait for each other: all have one grace period.
func TestDeletesOfAGroupGoOutTogether(t *testing.T) {
	var deletes []action.Action
	for i := range atOnce {
		deletes = append(deletes, action.Delete{Object: named(fmt.Sprint(i)), AnyVersion: true})
	}
	var begun sync.WaitGroup
	begun.Add(len(deletes))
	err := SlowStart(t.Context(), deletes, func(context.Context, action.Action) error {
		begun.Done()
		begun.Wait() // for ever, if one of them waits for another
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func run(n int) (actions []action.Action) {
	for i := range n {
		actions = append(actions, action.Tie{Object: named(fmt.Sprint(i))})
	}
	return actions
}

// Writers are nil below: what is refused before the write must not reach one.

func TestNothingIsMadeForAnOwnerThatIsNotAlive(t *testing.T) {
	for name, change := range map[string]func(*fakeapi.Server){
		"gone":         func(s *fakeapi.Server) { fakeapi.Drop[*corev1.Pod](s, "w-0") },
		"another life": func(s *fakeapi.Server) { fakeapi.Edit(s, "w-0", func(pod *corev1.Pod) { pod.UID = "other" }) },
		"on its way":   func(s *fakeapi.Server) { fakeapi.Terminate[*corev1.Pod](s, "w-0") },
	} {
		store := fakeapi.New()
		owner := identity.RefOf(identity.KindPod, fakeapi.Add(store, fakeapi.Pod("w-0", "w", 0)))
		change(store)
		actor := New(nil, store.Live())
		for _, a := range []action.Action{
			action.Create{Kind: identity.KindService, Object: &corev1.Service{}, Owner: owner},
			action.Apply{Object: &corev1.Service{}, Onto: owner, Adopter: &owner},
		} {
			if _, err := actor.Do(context.Background(), a); !errors.Is(err, ErrStale) {
				t.Errorf("%s: %s: %v", name, a.Verb(), err)
			}
		}
	}
}

func TestGarbageIsKeptWhileItsOwnerStands(t *testing.T) {
	store := fakeapi.New()
	owner := identity.RefOf(identity.KindPod, fakeapi.Add(store, fakeapi.Pod("w-0", "w", 0)))
	if _, err := New(nil, store.Live()).Do(context.Background(), action.Delete{Object: named("w-0-1"), OwnerGone: &owner}); !errors.Is(err, ErrStale) {
		t.Errorf("got %v", err)
	}
	live := store.Live()
	resource := schema.GroupResource{Resource: "pods"}
	for _, fails := range []error{
		errors.New("down"),
		apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", resource, "w-0", "404 page not found", 0, true),
	} {
		live.Fail = func(fakeapi.Name) error { return fails }
		_, err := New(&asked{}, live).Do(context.Background(), action.Delete{Object: named("w-0-1"), OwnerGone: &owner})
		if err == nil || errors.Is(err, ErrStale) {
			t.Errorf("an owner that could not be looked for: %v: %v", fails, err)
		}
	}
}

func TestAnApplyIsRefusedOnceTheObjectMoved(t *testing.T) {
	store := fakeapi.New()
	sts := fakeapi.Add(store, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w"}})
	onto := identity.RefOf(identity.KindStatefulSet, sts)
	fakeapi.Edit(store, "w", func(sts *appsv1.StatefulSet) { sts.Generation++ })
	if _, err := New(nil, store.Live()).Do(context.Background(), action.Apply{Object: &appsv1.StatefulSet{}, Onto: onto, FieldOwner: fieldOwner}); !errors.Is(err, ErrStale) {
		t.Errorf("got %v", err)
	}
}

// deniedAs is how the API server says that a webhook refused, with the code of err.
func deniedAs(err *apierrors.StatusError) error {
	err.ErrStatus.Message = `admission webhook "w.example.com" denied the request: no`
	return err
}

func TestQuiet(t *testing.T) {
	resource := schema.GroupResource{Resource: "statefulsets"}
	invalid := func(field string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: field}}},
		}}
	}
	tests := []struct {
		name  string
		err   error
		stale bool
	}{
		{"none", nil, false},
		{"conflict", apierrors.NewConflict(resource, "w", errors.New("x")), true},
		{"not found", apierrors.NewNotFound(resource, "w"), true},
		{"another uid", invalid("metadata.uid"), true},
		{"another field", invalid("spec.template"), false},
		{"no details", &apierrors.StatusError{}, false},
		{"forbidden", apierrors.NewForbidden(resource, "w", errors.New("x")), false},
		{"a webhook that calls it a conflict", deniedAs(apierrors.NewConflict(resource, "w", nil)), false},
		{"a webhook that finds nothing", deniedAs(apierrors.NewNotFound(resource, "w")), false},
		{"anything else", errors.New("x"), false},
	}
	for _, tt := range tests {
		got := quiet(tt.err)
		if errors.Is(got, ErrStale) != tt.stale || (tt.err != nil && !errors.Is(got, tt.err)) {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
	taken := fmt.Errorf("create: %w", &TakenError{Name: named("w-0")})
	if !errors.Is(taken, ErrStale) || taken.Error() != "create: the name of pod w-0 is taken" {
		t.Errorf("got %v", taken)
	}
}

func TestEncodeSendsWhatIsSetAndNothingElse(t *testing.T) {
	onto := identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "w", UID: "u", ResourceVersion: "3"}
	head := `"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"annotations":{"a":"b"},"name":"w","namespace":"ns","resourceVersion":"4","uid":"u"}`
	meta := metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}
	revision := onto
	revision.Kind = identity.KindControllerRevision
	tests := []struct {
		name   string
		object action.Object
		onto   identity.Ref
		want   string
	}{
		{"metadata only", &appsv1.StatefulSet{ObjectMeta: meta}, onto, "{" + head + "}"},
		{
			"what is to become of claims only, and not even an empty template",
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
				PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Retain", WhenScaled: "Retain"},
			}},
			onto,
			"{" + head + `,"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"}}}`,
		},
		{
			"empty choices stay, empty status goes",
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
				ServiceName:          "w",
				VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				}},
			}},
			onto,
			"{" + head + `,"spec":{"serviceName":"w","template":{"metadata":{},"spec":{"volumes":[{"emptyDir":{},"name":"v"}]}},"updateStrategy":{},"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"resources":{}}}]}}`,
		},
		{
			"a revision without a number", &appsv1.ControllerRevision{ObjectMeta: meta}, revision,
			`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"annotations":{"a":"b"},"name":"w","namespace":"ns","resourceVersion":"4","uid":"u"}}`,
		},
		{
			"a revision with one", &appsv1.ControllerRevision{ObjectMeta: meta, Revision: 7}, revision,
			`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"annotations":{"a":"b"},"name":"w","namespace":"ns","resourceVersion":"4","uid":"u"},"revision":7}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := encode(tt.object, tt.onto, "4")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parsed(t, tt.want), parsed(t, string(got))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if _, err := applied(tt.object, tt.onto, "4"); err != nil {
				t.Errorf("as an apply configuration: %v", err)
			}
		})
	}
	if _, err := applied(&corev1.Pod{}, named("w-0"), "4"); err == nil {
		t.Error("a pod was applied")
	}
}

func parsed(t *testing.T, encoded string) (value map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(encoded), &value); err != nil {
		t.Fatalf("%s: %v", encoded, err)
	}
	return value
}
