package check

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/install"
)

func TestEveryCheckHasItsHelp(t *testing.T) {
	text, err := os.ReadFile("../../../" + helpPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Concat(Installed, Before) {
		if !strings.Contains(strings.ToLower(string(text)), "\n## "+r.name+"\n") {
			t.Errorf("%s has no heading %q", helpPage, r.name)
		}
	}
}

func TestKubernetesVersion(t *testing.T) {
	for served, want := range map[string]Result{
		"v1.33.9": Failure, "v1.34.0": OK, "v1.34.0-gke.1": OK, "v1.37.1+k3s1": OK, "v2.0.0": OK,
	} {
		server := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}, FakedServerVersion: &version.Info{GitVersion: served}}
		r := &reader{Options: Options{Discovery: server}, site: &site{}}
		lines := check{"kubernetes", []read{serverVersion}, kubernetes}.find(t.Context(), r).lines
		if len(lines) != 1 || lines[0].Result != want {
			t.Errorf("%s: got %v", served, lines)
		}
	}
}

func denied(resource, scope string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "g", Resource: resource}, "x",
		errors.New(`User "u" cannot get resource "`+resource+`" in API group "g" `+scope))
}

// fails returns a read that ends with an error.
func fails(err error) read { return func(context.Context, *reader) error { return err } }

func TestErrorsAreFindings(t *testing.T) {
	isJudged := false
	judge := func(_ *site, f *findings) {
		isJudged = true
		f.otherwise("well")
	}
	a, b := fails(denied("a", "at the cluster scope")), fails(denied("b", `in the namespace "n"`))
	r := &reader{site: &site{}}
	lines := check{"roles", []read{a, b, a}, judge}.find(t.Context(), r).lines
	if len(lines) != 1 || lines[0].Result != Warning || !strings.Contains(lines[0].Message, `get a.g, get b.g in the namespace`) {
		t.Errorf("got %v", lines)
	}
	if isJudged {
		t.Error("what was not read was judged")
	}
	lines = check{"roles", []read{fails(nil), fails(errors.New("broken"))}, judge}.find(t.Context(), r).lines
	if len(lines) != 1 || lines[0].Result != Failure || isJudged {
		t.Errorf("got %v", lines)
	}
	lines = check{"roles", []read{fails(nil)}, judge}.find(t.Context(), r).lines
	if diff := cmp.Diff([]Line{{Result: OK, Message: "well"}}, lines); diff != "" {
		t.Error(diff)
	}
}

func TestRight(t *testing.T) {
	for want, got := range map[string]string{
		"get secrets s":              right("get", "secrets", "", "s"),
		"get /metrics":               right("get", "/metrics", ""),
		"list leases.c in namespace": right("list", "leases", "c", "in namespace"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What a role lacks is named by each verb.
func TestRoleLacks(t *testing.T) {
	role := func(verbs ...any) *object {
		u := install.Bare("rbac.authorization.k8s.io/v1", "ClusterRole", "", "r")
		u.Object["rules"] = []any{
			map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": append(verbs, "list")},
			map[string]any{"nonResourceURLs": []any{"/metrics"}, "verbs": verbs},
		}
		return u
	}
	want, live := role("get"), role("watch")
	got := findings{}
	roles := Installed[slices.IndexFunc(Installed, func(c check) bool { return c.name == "roles" })]
	roles.judge(&site{Expected: install.Expected{Objects: []*object{want}}, live: map[*object]*object{want: live}}, &got)
	if len(got.lines) != 1 || !strings.Contains(got.lines[0].Message, "get pods, get /metrics;") {
		t.Errorf("got %v", got.lines)
	}
}

// leased is a site that elects a leader, or not, and its leases.
func leased(elects bool, leases ...object) *site {
	s := &site{Expected: install.Expected{Config: &v1alpha1.Configuration{}}, found: map[string][]object{"Lease": leases}, now: time.Now(), version: "v1"}
	s.Config.LeaderElection.LeaderElect = &elects
	return s
}

// Without leader election no lease is held, and one of earlier days proves nothing.
func TestNoLeaseIsMissedWithoutLeaderElection(t *testing.T) {
	left := *install.Bare("coordination.k8s.io/v1", "Lease", "ns", "lease")
	for name, tt := range map[string]struct {
		site *site
		want Result
	}{
		"off":               {leased(false), OK},
		"off, one is left":  {leased(false, left), OK},
		"on, none was made": {leased(true), Warning},
		"on, one is left":   {leased(true, left), Failure},
	} {
		f := &findings{}
		if leader(tt.site, f); len(f.lines) != 1 || f.lines[0].Result != tt.want {
			t.Errorf("%s: got %v", name, f.lines)
		}
		if version := (&findings{}); tt.want == OK {
			if operatorVersion(tt.site, version); len(version.lines) != 1 || version.lines[0].Result != OK {
				t.Errorf("%s: the version: %v", name, version.lines)
			}
		}
	}
}

// A definition with a name that another one has serves nothing, whatever its fields are.
func TestADefinitionThatIsNotEstablishedFails(t *testing.T) {
	for name, conditions := range map[string][]any{
		"new": nil, "refused": {map[string]any{"type": "Established", "status": "False"}}, "served": {map[string]any{"type": "Established", "status": "True"}},
	} {
		live := install.Bare("apiextensions.k8s.io/v1", crd, "", "a")
		live.Object["spec"], live.Object["status"] = map[string]any{"versions": []any{}}, map[string]any{"conditions": conditions}
		f := &findings{}
		fields(&site{}, f, live, live)
		if isRefused := len(f.lines) > 0; isRefused != (name != "served") {
			t.Errorf("%s: %v", name, f.lines)
		}
	}
}
