package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// roles finds roles and bindings that are missing, and rights that roles lack.
func roles(ctx context.Context, s *site, f *findings) error {
	wanted := s.ofKinds("ClusterRole", "Role")
	for _, live := range s.present(ctx, f, wanted) {
		i := slices.IndexFunc(wanted, func(u *unstructured.Unstructured) bool { return title(u) == title(live) })
		lacks, err := lacking(wanted[i], live)
		if err != nil {
			return err
		}
		if len(lacks) > 0 {
			f.fail("%s lacks rights: %s; run: %s", title(live), few(lacks), s.Command)
		}
	}
	bindings := s.ofKinds("ClusterRoleBinding", "RoleBinding")
	s.compare(f, Failure, s.present(ctx, f, bindings))
	if !f.hasFound() {
		f.ok("all %d roles have their rights, and %d bindings their subjects", len(wanted), len(bindings))
	}
	return nil
}

// lacking returns the rights of one role that another lacks.
func lacking(want, live *unstructured.Unstructured) (lacks []string, err error) {
	ours, err := rulesOf(want)
	if err != nil {
		return nil, err
	}
	theirs, err := rulesOf(live)
	if err != nil {
		return nil, err
	}
	_, missing := validation.Covers(theirs, ours)
	for _, rule := range missing {
		lacks = append(lacks, right(rule))
	}
	return lacks, nil
}

func rulesOf(role *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	typed := &rbacv1.ClusterRole{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(role.Object, typed)
	return typed.Rules, err
}

// right is one rule as kubectl auth can-i takes it.
func right(rule rbacv1.PolicyRule) string {
	what := rule.NonResourceURLs
	for i, resource := range rule.Resources {
		what = append(what, strings.TrimSuffix(resource+"."+rule.APIGroups[min(i, len(rule.APIGroups)-1)], "."))
	}
	return fmt.Sprintf("%s %s", strings.Join(rule.Verbs, ","), strings.Join(append(what, rule.ResourceNames...), " "))
}
