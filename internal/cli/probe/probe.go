// Package probe asks the API server what it would do. It writes nothing: it creates objects as a dry run. It refuses to
// know what an answer means.
package probe

import (
	"context"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The objects are valid, and without what typed ones would state.
const (
	template = `{metadata: {labels: {app: lockstep-check}}, spec: {containers: [{name: check, image: check}]}}`
	spec     = `{leaderWorkerTemplate: {workerTemplate: ` + template + `}}`
	set      = `{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {generateName: lockstep-check-},
		spec: ` + spec + `}`
	roles = `{apiVersion: disaggregatedset.x-k8s.io/v1, kind: DisaggregatedSet, metadata: {generateName: lockstep-check-},
		spec: {roles: [{name: check, spec: ` + spec + `}]}}`
	statefulSet = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: lockstep-check},
		spec: {selector: {matchLabels: {app: lockstep-check}}, template: ` + template + `,
		updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}}}`
)

// Set creates a LeaderWorkerSet and a DisaggregatedSet, and returns why one is refused.
func Set(ctx context.Context, c client.Client, namespace string) error {
	_, err := create(ctx, c, set, namespace)
	if err == nil {
		_, err = create(ctx, c, roles, namespace)
	}
	return err
}

// MaxUnavailable reports whether StatefulSets keep maxUnavailable, and why one is refused. The schema has the field,
// whether it is switched on or not.
func MaxUnavailable(ctx context.Context, c client.Client, namespace string) (keeps bool, err error) {
	created, err := create(ctx, c, statefulSet, namespace)
	_, keeps, _ = unstructured.NestedInt64(created.Object, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
	return keeps, err
}

func create(ctx context.Context, c client.Client, text, namespace string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), u); err != nil {
		panic(err) // it is compiled in
	}
	u.SetNamespace(namespace)
	return u, c.Create(ctx, u, client.DryRunAll)
}

// Right is a right that a user may have.
type Right = authorizationv1.ResourceAttributes

// Rights asks for the rights to read and write the kinds of some objects, and for others. It returns those that the
// user lacks. They are asked for in all namespaces: the one of an object may not exist.
func Rights(
	ctx context.Context, c client.Client, objects []*unstructured.Unstructured, wanted ...Right,
) (lacks []Right, err error) {
	for _, u := range objects {
		resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind()) // all of these plurals are regular
		for _, verb := range []string{"get", "list", "create", "update"} {
			wanted = append(wanted, Right{Verb: verb, Group: resource.Group, Resource: resource.Resource})
		}
	}
	for i, want := range wanted {
		if slices.Contains(wanted[:i], want) {
			continue
		}
		review := authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = &want
		if err := c.Create(ctx, &review); err != nil {
			return nil, err
		}
		if !review.Status.Allowed {
			lacks = append(lacks, want)
		}
	}
	return lacks, nil
}
