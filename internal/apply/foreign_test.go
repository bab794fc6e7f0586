package apply

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// paper takes writes down.
type paper struct {
	client.Client
	fails   error
	created client.CreateOptions
	applied map[string]any
	options client.ApplyOptions
}

func (p *paper) Create(_ context.Context, _ client.Object, options ...client.CreateOption) error {
	p.created.ApplyOptions(options)
	return p.fails
}

func (p *paper) Apply(_ context.Context, fields runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	p.options.ApplyOptions(options)
	encoded, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return errors.Join(json.Unmarshal(encoded, &p.applied), p.fails)
}

// aliveLeader finds any owner alive.
type aliveLeader struct{ client.Reader }

func (aliveLeader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.SetName(key.Name)
	into.SetUID("leader")
	return nil
}

func podGroup() *unstructured.Unstructured {
	return gang.Volcano{}.Object(gang.Group{Namespace: fakeapi.Namespace, Name: "w-0-r", MinMember: 2})
}

func TestAForeignObjectIsMadeOnlyWhereItsKindIsServed(t *testing.T) {
	resource := schema.GroupResource{Group: "scheduling.volcano.sh", Resource: "podgroups"}
	taken := &TakenError{}
	tests := []struct {
		name         string
		fails        error
		stale, taken bool
	}{
		{"it is made", nil, false, false},
		{"the name is taken", apierrors.NewAlreadyExists(resource, "w-0-r"), true, true},
		{"the kind is gone", apierrors.NewNotFound(resource, "w-0-r"), true, false},
		{"the kind is going", apierrors.NewMethodNotSupported(resource, "create"), true, false},
		{"the kind was never there", &meta.NoKindMatchError{}, true, false},
		{"a webhook refuses with what a missing kind is told by", deniedAs(apierrors.NewNotFound(resource, "w-0-r")), false, false},
		{"a webhook refuses with what a name that is taken is told by", deniedAs(apierrors.NewAlreadyExists(resource, "w-0-r")), false, false},
		{"it is refused", apierrors.NewForbidden(resource, "w-0-r", errors.New("no")), false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &paper{fails: tt.fails}
			owner := identity.Ref{Kind: identity.KindPod, Namespace: fakeapi.Namespace, Name: "w-0", UID: "leader"}
			_, err := New(p, aliveLeader{}).Do(t.Context(), action.Create{Kind: identity.KindPodGroup, Object: podGroup(), Owner: owner})
			if errors.Is(err, ErrStale) != tt.stale || errors.As(err, &taken) != tt.taken || (err == nil) != (tt.fails == nil) {
				t.Errorf("got %v", err)
			}
			if tt.taken && taken.Name.APIVersion != "scheduling.volcano.sh/v1beta1" {
				t.Errorf("nobody can look for %+v", taken.Name)
			}
			if !p.created.DisableReadYourWritesConsistency {
				t.Error("the next look would wait for a cache of a kind that may not be served")
			}
		})
	}
}

func TestAForeignObjectIsAppliedAsTheVersionThatWasJudged(t *testing.T) {
	p := &paper{}
	onto := identity.RefOf(identity.KindPodGroup, podGroup())
	onto.UID, onto.ResourceVersion = "pg", "7"
	part := &unstructured.Unstructured{}
	part.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "w-0", UID: "leader"}})
	before := part.DeepCopy()
	if _, err := New(p, aliveLeader{}).Do(t.Context(), action.Apply{Object: part, Onto: onto, FieldOwner: "adopter"}); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
		"metadata": map[string]any{
			"namespace": fakeapi.Namespace, "name": "w-0-r", "uid": "pg", "resourceVersion": "7",
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "w-0", "uid": "leader"}},
		},
	}
	if diff := cmp.Diff(want, p.applied); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(before, part); diff != "" {
		t.Errorf("what was decided was changed\n%s", diff)
	}
	if !p.options.DisableReadYourWritesConsistency {
		t.Error("the next look would wait for a cache of a kind that may not be served")
	}
}
