package observe

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/config"
)

// standingGuards has policies and bindings, by kind and name, but those that are away.
type standingGuards struct {
	client.Reader
	away []string
	err  error
}

func (s standingGuards) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if slices.Contains(s.away, o.GetObjectKind().GroupVersionKind().Kind+"/"+key.Name) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return s.err
}

func TestPoliciesThatAreDeletedAreMissed(t *testing.T) {
	policy, binding := "ValidatingAdmissionPolicy/"+Guarding[0], "ValidatingAdmissionPolicyBinding/"+Guarding[1]
	for _, tt := range []struct {
		name string
		away []string
		want []string
	}{
		{"all are there", nil, nil},
		{"a policy is away", []string{policy}, Guarding[:1]},
		{"a binding is away", []string{binding}, Guarding[1:2]},
		{"both", []string{policy, binding}, Guarding[:2]},
	} {
		got, err := NewGuards(standingGuards{away: tt.away}).Missing(t.Context())
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
	if got, err := NewGuards(standingGuards{err: errors.New("forbidden")}).Missing(t.Context()); err == nil || got != nil {
		t.Errorf("what cannot be read is missing: %v, %v", got, err)
	}
}

// What is looked for is what is installed.
func TestTheGuardsAreThoseInstalled(t *testing.T) {
	var all strings.Builder
	err := fs.WalkDir(config.Protection, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := config.Protection.ReadFile(path)
		all.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Guarding {
		for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
			if !strings.Contains(all.String(), "kind: "+kind+"\nmetadata:\n  name: "+name+"\n") {
				t.Errorf("no %s %s is installed", kind, name)
			}
		}
	}
}
