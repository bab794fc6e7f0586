package pvccache

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/config"
)

// standingPolicies has policies and bindings, by kind and name, but those that are away.
type standingPolicies struct {
	client.Reader
	away []string
	err  error
	// unknown begins the names of kinds of policies that are not served.
	unknown string
}

func (s standingPolicies) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if s.unknown != "" && strings.HasPrefix(kind, s.unknown+"Admission") {
		return &meta.NoKindMatchError{}
	}
	if slices.Contains(s.away, kind+"/"+key.Name) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return s.err
}

func TestDeletedPoliciesAreMissing(t *testing.T) {
	away := func(names ...string) (kinds []string) {
		for _, name := range names {
			kinds = append(kinds, "ValidatingAdmissionPolicy/"+name+ours, "MutatingAdmissionPolicy/"+name+ours)
		}
		return kinds
	}
	for _, tt := range []struct {
		name string
		away []string
		want []string
	}{
		{"all are there", nil, nil},
		{"what refuses a deletion", away("refuse-delete"), []string{"refuse-delete"}},
		{"a binding", []string{"ValidatingAdmissionPolicyBinding/guard" + ours}, []string{"guard"}},
		{"both, in order", slices.Concat(away("guard"), away("refuse-delete")), []string{"refuse-delete", "guard"}},
		{"what has pods gated in mode strict", away("gated"), []string{"gated"}},
		{"the gate of mode strict", away("gate"), []string{"gate"}},
		{"a binding of the barrier", []string{"MutatingAdmissionPolicyBinding/barrier" + ours}, []string{"barrier"}},
		{"the removal of forged annotations", away("forged"), []string{"forged"}},
		{"policies that were not chosen", away("initial-hold", "pod-protection"), nil},
	} {
		got, err := NewPolicies(standingPolicies{away: tt.away}, false, false).Missing(t.Context())
		for i := range tt.want {
			tt.want[i] += ours
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
	chosen := NewPolicies(standingPolicies{away: away("initial-hold", "pod-protection")}, true, true)
	if got, err := chosen.Missing(t.Context()); err != nil || !slices.Equal(got, []string{"pod-protection" + ours, "initial-hold" + ours}) {
		t.Errorf("of what was chosen: %v, %v", got, err)
	}
	if got, err := NewPolicies(standingPolicies{err: errors.New("forbidden")}, false, false).Missing(t.Context()); err == nil || got != nil {
		t.Errorf("what cannot be read is missing: %v, %v", got, err)
	}
}

// Before 1.36 the controller takes the place of mutating policies.
func TestAPolicyOfAKindThatIsNotServedIsMissing(t *testing.T) {
	got, err := NewPolicies(standingPolicies{unknown: "Mutating"}, true, false).Missing(t.Context())
	if len(got) > 0 || err != nil {
		t.Errorf("before 1.36: missing %v, %v", got, err)
	}
	if got, err := NewPolicies(standingPolicies{unknown: "Validating"}, false, false).Missing(t.Context()); err == nil {
		t.Errorf("before 1.30: missing %v, and no error", got)
	}
}

func TestTheExpectedPoliciesAreInstalled(t *testing.T) {
	var all strings.Builder
	err := fs.WalkDir(config.Protection, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(config.Protection, path)
		all.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	installed, sought := map[string]bool{}, map[string]bool{}
	for _, found := range regexp.MustCompile(`kind: (\w*Admission\w*)\nmetadata:\n  name: (\S+)`).FindAllStringSubmatch(all.String(), -1) {
		if !strings.HasPrefix(found[2], "refuse-forged") { // before 1.36 alone
			installed[found[1]+" "+found[2]] = true
		}
	}
	for _, wanted := range NewPolicies(nil, true, true).want {
		sought[wanted.kind+" "+wanted.name], sought[wanted.kind+"Binding "+wanted.name] = true, true
	}
	if diff := cmp.Diff(installed, sought); diff != "" {
		t.Errorf("(-installed +expected):\n%s", diff)
	}
}
