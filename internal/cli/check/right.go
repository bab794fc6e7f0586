package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// rights finds what the user may not do, and install does.
func rights(ctx context.Context, s *site, f *findings) error {
	var lacks []string
	wanted, err := s.rightsOfInstall()
	if err != nil {
		return err
	}
	for _, want := range wanted {
		may, err := s.may(ctx, want)
		if err != nil {
			return err
		}
		if text := rightText(want); !may && !slices.Contains(lacks, text) {
			lacks = append(lacks, text)
		}
	}
	switch may, err := s.may(ctx, authorizationv1.ResourceAttributes{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}); {
	case err != nil:
		return err
	case len(lacks) > 0:
		f.fail("install needs rights that you lack: %s", few(lacks))
	case !may:
		f.warn("you may not escalate clusterroles: install succeeds only if you have every right that the operator gets")
	default:
		f.ok("you have the %d rights that install needs", len(wanted))
	}
	return nil
}

// rightsOfInstall returns the right to read, create and update each object, and what install reads
// besides.
func (s *site) rightsOfInstall() ([]authorizationv1.ResourceAttributes, error) {
	all := []authorizationv1.ResourceAttributes{
		{Verb: "list", Group: "coordination.k8s.io", Resource: "leases"},
		{Verb: "list", Group: lwsv1.GroupVersion.Group, Resource: "leaderworkersets"},
	}
	for _, u := range s.Objects {
		resource, err := s.resourceOf(u)
		if err != nil {
			return nil, err
		}
		for _, verb := range []string{"get", "list", "create", "update"} {
			right := authorizationv1.ResourceAttributes{Verb: verb, Group: resource.Group, Resource: resource.Resource, Namespace: u.GetNamespace()}
			if verb == "list" {
				right.Namespace = "" // install finds what an earlier version left
			}
			if !slices.Contains(all, right) {
				all = append(all, right)
			}
		}
	}
	return all, nil
}

func (s *site) resourceOf(u *unstructured.Unstructured) (schema.GroupVersionResource, error) {
	kind := u.GroupVersionKind()
	mapping, err := s.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	return mapping.Resource, nil
}

// may asks the API server whether the user has a right.
func (s *site) may(ctx context.Context, right authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
	err := s.Client.Create(ctx, review)
	return review.Status.Allowed, err
}

func rightText(r authorizationv1.ResourceAttributes) string {
	text := strings.TrimSuffix(fmt.Sprintf("%s %s.%s", r.Verb, r.Resource, r.Group), ".")
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}
