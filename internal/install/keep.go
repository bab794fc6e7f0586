package install

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// keeping leaves out what sets live in, and puts the rest in the order in which a
// hand-over goes: the policy first, then the operator, and the webhooks last. Until they go no pod of
// a set is made; after, and until somebody else answers in their place, pods are
// made without what they need.
func keeping(all []*unstructured.Unstructured) []*unstructured.Unstructured {
	var policy, operator, rest, webhooks []*unstructured.Unstructured
	for _, u := range all {
		switch {
		case rank(u) > 0:
		case isPolicy(u):
			policy = append(policy, u)
		case isWebhooks(u):
			webhooks = append(webhooks, u)
		case u.GetKind() == "Deployment":
			operator = append(operator, u)
		default:
			rest = append(rest, u)
		}
	}
	return slices.Concat(policy, operator, rest, webhooks)
}

// tellOfKept says what stays, and what of it only Lockstep knows.
func (o Options) tellOfKept(ctx context.Context, a applier) error {
	sets, err := a.count(ctx, lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"))
	if unknownKind(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("count LeaderWorkerSets: %w", err)
	}
	o.say("%d LeaderWorkerSets stay; until another implementation is installed nothing mends them, and pods made meanwhile lack their labels and variables", sets)
	past, err := a.count(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevisionList"}, client.HasLabels{lws.HistoryLabelKey})
	if err != nil {
		return fmt.Errorf("count revisions: %w", err)
	}
	if past > 0 {
		o.say("%d revisions that no group runs stay with their sets; only Lockstep reads them; to remove them: kubectl delete controllerrevisions --all-namespaces --selector %s", past, lws.HistoryLabelKey)
	}
	return nil
}

func (a applier) count(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) (int, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	err := a.client.List(ctx, list, options...)
	return len(list.Items), err
}
