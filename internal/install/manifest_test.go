package install

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"lockstep.dev/lockstep/internal/webhook"
)

func load(t *testing.T, o Options) []*unstructured.Unstructured { return loadFor(t, o) }

// loadFor is load for an API server that lacks some kinds.
func loadFor(t *testing.T, o Options, lacks ...string) []*unstructured.Unstructured {
	t.Helper()
	s, err := o.shape(lacks)
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.manifests()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func titles(all []*unstructured.Unstructured) (names []string) {
	for _, u := range all {
		names = append(names, title(u))
	}
	return names
}

func TestInstallRendersWhatEachFormNeeds(t *testing.T) {
	const deployment, service = "deployment.apps/lws-controller-manager", "service/lws-webhook-service"
	for name, c := range map[string]struct {
		options             Options
		deployment, service bool
	}{
		"called by URL":             {options: Options{WebhookURL: "https://h"}},
		"called by Service":         {service: true},
		"in the cluster":            {options: Options{Image: "i"}, deployment: true, service: true},
		"in the cluster and by URL": {options: Options{Image: "i", WebhookURL: "https://h"}, deployment: true, service: true},
	} {
		got := titles(load(t, c.options))
		if slices.Contains(got, deployment) != c.deployment || slices.Contains(got, service) != c.service {
			t.Errorf("%s: %q", name, got)
		}
		if got[0] != "namespace/lws-system" || !strings.HasPrefix(got[len(got)-1], "validatingadmissionpolicybinding") {
			t.Errorf("%s: wrong order: %q", name, got)
		}
	}
}

func TestWebhooksHaveTheirPathsAndSelectors(t *testing.T) {
	got := map[string]string{}
	for _, u := range load(t, Options{WebhookURL: "https://127.0.0.1:1/"}) {
		for _, hook := range webhooksOf(u) {
			address, _, _ := unstructured.NestedString(hook, "clientConfig", "url")
			_, service, _ := unstructured.NestedMap(hook, "clientConfig", "service")
			selector, _, _ := unstructured.NestedSlice(hook, "objectSelector", "matchExpressions")
			got[hook["name"].(string)] = fmt.Sprint(u.GetName(), " ", address, " ", service, selector)
		}
	}
	want := map[string]string{
		"mleaderworkerset.kb.io": webhook.MutatingConfiguration + " https://127.0.0.1:1" + webhook.PathMutateSet + " false []",
		"mpod.kb.io": webhook.MutatingConfiguration + " https://127.0.0.1:1" + webhook.PathMutatePod +
			" false [map[key:leaderworkerset.sigs.k8s.io/name operator:Exists]]",
		"vleaderworkerset.kb.io": webhook.ValidatingConfiguration + " https://127.0.0.1:1" + webhook.PathValidateSet + " false []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The operator gets the least that it needs: a verb that appears here by accident is a way
// into the cluster.
func TestRolesGrantTheLeast(t *testing.T) {
	var granted []string
	for what, verbs := range grantsOf(t, Options{}, "lws-controller-manager") {
		granted = append(granted, what+": "+verbs)
	}
	slices.Sort(granted)
	want, err := os.ReadFile("testdata/grants.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), strings.Join(granted, "\n")+"\n"); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A user who may read a set may read all that kubectl lockstep needs.
func TestUserRolesCoverWhatThePluginReads(t *testing.T) {
	roles := 0
	for _, u := range load(t, Options{}) {
		if u.GetKind() != "ClusterRole" || !strings.HasPrefix(u.GetName(), "lws-leaderworkerset-") {
			continue
		}
		roles++
		may := map[string]string{}
		for _, r := range convert[rbacv1.ClusterRole](t, u).Rules {
			for _, resource := range r.Resources {
				may[resource] = strings.Join(r.Verbs, " ")
			}
		}
		for resource, verbs := range map[string]string{
			"statefulsets": "get list watch", "controllerrevisions": "get list watch",
			"pods": "get list watch", "services": "get list watch", "podgroups": "get",
		} {
			if may[resource] != verbs {
				t.Errorf("%s may %q %s, want %q", u.GetName(), may[resource], resource, verbs)
			}
		}
	}
	if roles != 2 {
		t.Errorf("%d roles", roles)
	}
}

// grantsOf lists what the roles bound to a service account allow.
func grantsOf(t *testing.T, o Options, account string) map[string]string {
	t.Helper()
	rules, bound := map[string][]rbacv1.PolicyRule{}, map[string]bool{}
	for _, u := range load(t, o) {
		switch u.GetKind() {
		case "Role", "ClusterRole":
			role := convert[rbacv1.ClusterRole](t, u)
			rules[u.GetKind()+role.Name] = role.Rules
		case "RoleBinding", "ClusterRoleBinding":
			binding := convert[rbacv1.ClusterRoleBinding](t, u)
			if binding.Subjects[0].Name == "system:kube-scheduler" {
				continue // what the scheduler's plugin needs
			}
			if len(binding.Subjects) != 1 || binding.Subjects[0].Name != account || binding.Subjects[0].Namespace != namespaceName {
				t.Errorf("%s binds %v", title(u), binding.Subjects)
			}
			bound[binding.RoleRef.Kind+binding.RoleRef.Name] = true
		}
	}
	grants := map[string]string{}
	for role := range bound {
		if len(rules[role]) == 0 {
			t.Errorf("a binding names %s, which is not installed", role)
		}
		name := strings.TrimPrefix(strings.TrimPrefix(role, "Cluster"), "Role")
		for _, r := range rules[role] {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					grants[strings.Join([]string{name, group, resource, "[" + strings.Join(r.ResourceNames, " ") + "]"}, " ")] = strings.Join(r.Verbs, " ")
				}
			}
		}
	}
	return grants
}

func convert[T any](t *testing.T, u *unstructured.Unstructured) *T {
	t.Helper()
	v := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, v, true); err != nil {
		t.Fatalf("%s: %v", title(u), err)
	}
	return v
}

// The definition and the namespace go last.
func TestOrderOfRemoval(t *testing.T) {
	byPhase := map[int][]string{}
	for _, u := range load(t, Options{Image: "i"}) {
		p := phaseOf(u)
		byPhase[p] = append(byPhase[p], u.GetKind())
	}
	for p, kinds := range byPhase {
		slices.Sort(kinds)
		byPhase[p] = slices.Compact(kinds)
	}
	want := map[int][]string{
		labelsPhase:     {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
		finalizersPhase: {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"},
		operatorPhase:   {"Deployment"},
		refusalsPhase:   {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
		rolesPhase:      {"ClusterRole", "ClusterRoleBinding", "ConfigMap", "MutatingWebhookConfiguration", "Role", "RoleBinding", "Service", "ServiceAccount", "ValidatingWebhookConfiguration"},
		definitionPhase: {"CustomResourceDefinition"},
		namespacePhase:  {"Namespace"},
	}
	if diff := cmp.Diff(want, byPhase); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An upgrade finds everything of the version before by its labels.
func TestUpgradePrunesObsoleteObjects(t *testing.T) {
	kinds := map[string]bool{}
	for _, u := range load(t, Options{Image: "i"}) {
		kind, _, _ := strings.Cut(title(u), "/")
		kinds[kind] = true
	}
	text, err := os.ReadFile("testdata/before.txt")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for line := range strings.Lines(string(text)) {
		object, labels, _ := strings.Cut(strings.TrimSpace(line), " name=")
		name, _, _ := strings.Cut(labels, " ")
		kind, _, _ := strings.Cut(object[strings.LastIndex(object, " ")+1:], "/")
		if strings.HasPrefix(line, "#") || strings.HasPrefix(kind, "customresourcedefinition") {
			continue
		}
		compared++
		if !kinds[kind] || name != setsLabel && name != standaloneLabel {
			t.Errorf("%s would stay", object)
		}
	}
	if compared < 50 {
		t.Errorf("only %d objects were compared", compared)
	}
}
