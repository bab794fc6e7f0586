package check

import (
	"context"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/component-helpers/auth/rbac/validation"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
)

var (
	policies = rules{Failure, "policies and bindings that exist", map[string]rule{
		operator.ValidatingPolicy: policy, operator.ValidatingPolicy + "Binding": policy,
		operator.MutatingPolicy: policy, operator.MutatingPolicy + "Binding": policy,
	}}
	roles = rules{Failure, "roles and bindings with their rights and subjects", map[string]rule{
		"ClusterRole": role, "ClusterRoleBinding": unlike(Failure), "Role": role, "RoleBinding": unlike(Failure),
	}}
)

// policy finds a policy that does not refuse what it should.
func policy(s *site, f *findings, want, live *object) {
	if s.ConfigRead { // parts of the configuration are in the policies
		unlike(Warning)(s, f, want, live)
	}
}

// role finds rights that a role lacks.
func role(s *site, f *findings, want, live *object) {
	_, missing := validation.Covers(as[rbacv1.ClusterRole](f, live).Rules, as[rbacv1.ClusterRole](f, want).Rules)
	var lacks []string
	for _, rule := range missing { // each has one verb
		what := slices.Concat(rule.Resources, rule.NonResourceURLs)
		lacks = append(lacks, right(rule.Verbs[0], what[0], strings.Join(rule.APIGroups, ""), rule.ResourceNames...))
	}
	if len(lacks) > 0 {
		f.fail("%s lacks rights: %s; run: %s", title(want), install.Few(lacks), s.Command)
	}
}

// right names a right as kubectl auth can-i takes it.
func right(verb, resource, group string, more ...string) string {
	text := strings.TrimSuffix(verb+" "+resource+"."+group, ".")
	return strings.TrimSpace(text + " " + strings.Join(more, " "))
}

// rightsOfInstall asks for the right to read and write the kind of each object, and to read what install
// reads besides. They are asked for in all namespaces: that of the operator may not exist.
func rightsOfInstall(ctx context.Context, r *reader) error {
	type attributes = authorizationv1.ResourceAttributes
	needed := []attributes{
		{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"},
		{Verb: "list", Group: coordinationv1.GroupName, Resource: "leases"},
		{Verb: "list", Group: lwsv1.GroupVersion.Group, Resource: "leaderworkersets"},
	}
	for _, u := range r.Objects {
		resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind()) // all of these plurals are regular
		for _, verb := range []string{"get", "list", "create", "update"} {
			needed = append(needed, attributes{Verb: verb, Group: resource.Group, Resource: resource.Resource})
		}
	}
	for i, want := range needed {
		if slices.Contains(needed[:i], want) {
			continue
		}
		review := authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = &want
		if err := r.Client.Create(ctx, &review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			r.denied = append(r.denied, right(want.Verb, want.Resource, want.Group))
		}
	}
	return nil
}

// rights finds what the user may not do, and install does.
func rights(s *site, f *findings) {
	lacks := slices.DeleteFunc(slices.Clone(s.denied), func(right string) bool { return strings.HasPrefix(right, "escalate ") })
	if len(lacks) > 0 {
		f.fail("install needs rights that you lack: %s", install.Few(lacks))
	}
	if len(lacks) < len(s.denied) {
		f.warn("you may not escalate clusterroles: install succeeds only if you have every right that the operator gets")
	}
	f.otherwise("you have the rights that install needs")
}
