package rights

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// grant is one verb of one role, for one resource.
type grant struct {
	role, verb, group, resource string
	names                       []string
}

// Each verb that a role of the operator grants was used in a drill, and the operator lacked none.
// "make drills" writes the file.
func TestTheOperatorUsesAllItsRights(t *testing.T) {
	used, err := drill.ReadRights(os.Getenv(drill.RightsFile))
	expect.OKf(t, err, "%s: want the file of a run of all drills; run \"make drills\"", drill.RightsFile)
	for _, right := range drill.Lacked(used) {
		t.Errorf("the operator lacked a right: %+v", right)
	}
	grants := operatorGrants(t)
	expect.Must(t, len(grants) >= 50, "only %d grants were found", len(grants))
	for _, g := range grants {
		expect.That(t, g.isAskedByAdmission() || slices.ContainsFunc(used, g.isUsedBy),
			"%s grants %s %s.%s %v, and no drill used it", g.role, g.verb, g.resource, g.group, g.names)
	}
}

// isAskedByAdmission reports whether a policy, or admission of Kubernetes itself, asks for the verb: no
// request names it.
func (g grant) isAskedByAdmission() bool {
	return strings.HasSuffix(g.group, "lockstep.dev") || strings.HasSuffix(g.resource, "/finalizers")
}

// reads are by rising power: a client that may watch may as well list, and one that lists may get. It
// lists where the API server does not stream what exists.
var reads = []string{"get", "list", "watch"}

// isUsedBy reports whether a request needed the verb, or a read that shows more.
func (g grant) isUsedBy(right drill.Right) bool {
	least := slices.Index(reads, g.verb)
	isVerb := right.Verb == g.verb || least >= 0 && slices.Index(reads, right.Verb) > least
	isNamed := len(g.names) == 0 || slices.Contains(g.names, right.Name)
	return !right.Denied && isVerb && isNamed && right.Group == g.group && (g.resource == "*" || right.Resource == g.resource)
}

// operatorGrants returns what the roles grant that are bound to the operator's account.
func operatorGrants(t *testing.T) (all []grant) {
	t.Helper()
	plan := expect.Value(install.Plan(t.Context(), nil, nil))(t)
	bound := map[string]bool{}
	for _, u := range plan.Objects {
		if strings.HasSuffix(u.GetKind(), "RoleBinding") {
			binding := convert[rbacv1.ClusterRoleBinding](t, u)
			bound[binding.RoleRef.Name] = binding.Subjects[0].Kind == rbacv1.ServiceAccountKind
		}
	}
	for _, u := range plan.Objects {
		if !strings.HasSuffix(u.GetKind(), "Role") || !bound[u.GetName()] {
			continue
		}
		for _, rule := range convert[rbacv1.ClusterRole](t, u).Rules {
			all = append(all, grantsOf(u.GetName(), rule)...)
		}
	}
	return all
}

func grantsOf(role string, rule rbacv1.PolicyRule) (all []grant) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, grant{role, verb, group, resource, rule.ResourceNames})
			}
		}
	}
	return all
}

func convert[T any](t *testing.T, u *unstructured.Unstructured) *T {
	t.Helper()
	typed := new(T)
	expect.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed))
	return typed
}
