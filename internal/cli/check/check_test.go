package check

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestEveryCheckHasItsHelp(t *testing.T) {
	text, err := os.ReadFile("../../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Concat(installed, before) {
		if !strings.Contains(strings.ToLower(string(text)), "\n## "+r.name+"\n") {
			t.Errorf("%s has no heading %q", page, r.name)
		}
	}
}

func TestKubernetesVersion(t *testing.T) {
	for served, want := range map[string]Result{
		"v1.33.9": Failure, "v1.34.0": OK, "v1.34.0-gke.1": OK, "v1.37.1+k3s1": OK, "v2.0.0": OK,
	} {
		server := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}, FakedServerVersion: &version.Info{GitVersion: served}}
		f := &findings{}
		if err := kubernetesVersion(t.Context(), &site{Options: Options{Discovery: server}}, f); err != nil || len(f.lines) != 1 || f.lines[0].Result != want {
			t.Errorf("%s: got %v, %v", served, f.lines, err)
		}
	}
}

func TestDiffers(t *testing.T) {
	want := map[string]any{"spec": map[string]any{"list": []any{map[string]any{"a": int64(1)}}, "text": "x"}}
	for name, c := range map[string]struct {
		live any
		at   string
	}{
		"the same":           {want, ""},
		"with defaults":      {map[string]any{"spec": map[string]any{"list": []any{map[string]any{"a": 1.0, "b": 2}}, "text": "x", "more": true}}, ""},
		"another value":      {map[string]any{"spec": map[string]any{"list": []any{map[string]any{"a": int64(2)}}, "text": "x"}}, ".spec.list[0].a"},
		"one element more":   {map[string]any{"spec": map[string]any{"list": []any{map[string]any{"a": int64(1)}, nil}, "text": "x"}}, ".spec.list"},
		"a field is missing": {map[string]any{"spec": map[string]any{"list": []any{map[string]any{"a": int64(1)}}}}, ".spec.text"},
		"nothing":            {nil, ".spec.list"},
	} {
		if got := differs(want, c.live, ""); got != c.at {
			t.Errorf("%s: got %q, want %q", name, got, c.at)
		}
	}
}

func TestErrorsAreFindings(t *testing.T) {
	f := &findings{check: "roles"}
	denied := func(resource, scope string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: "g", Resource: resource}, "x",
			errors.New(`User "u" cannot get resource "`+resource+`" in API group "g" `+scope))
	}
	for _, err := range []error{nil, denied("a", "at the cluster scope"), denied("a", "at the cluster scope"), denied("b", `in the namespace "n"`)} {
		f.take(err)
	}
	if !f.hasFound() || len(f.lines) > 0 {
		t.Errorf("got %v", f.lines)
	}
	f.sayUnread()
	f.take(errors.New("broken"))
	if len(f.lines) != 2 || f.lines[0].Result != Warning || f.lines[1].Result != Failure ||
		!strings.Contains(f.lines[0].Message, "get a.g, get b.g in namespace n") {
		t.Errorf("got %v", f.lines)
	}
}

func TestRight(t *testing.T) {
	got := right(rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"s"}})
	if diff := cmp.Diff("get secrets s", got); diff != "" {
		t.Error(diff)
	}
	got = right(rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}})
	if diff := cmp.Diff("get /metrics", got); diff != "" {
		t.Error(diff)
	}
}
