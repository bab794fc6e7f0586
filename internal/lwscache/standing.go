package lwscache

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
)

// Standing returns, live, the metadata of all there is of the kind, in the
// namespace and with the name and labels of what a write relies on.
func (o *Observer) Standing(ctx context.Context, relied action.Standing) ([]metav1.ObjectMeta, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: apiVersions[relied.Kind], Kind: string(relied.Kind) + "List"}}
	options := []client.ListOption{client.InNamespace(relied.Namespace), client.MatchingLabels(relied.Labels)}
	if relied.Name != "" {
		options = append(options, client.MatchingFields{metav1.ObjectNameField: relied.Name})
	}
	if err := o.live.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("look for what is relied on: %w", err)
	}
	now := make([]metav1.ObjectMeta, 0, len(list.Items))
	for i := range list.Items {
		now = append(now, list.Items[i].ObjectMeta)
	}
	return now, nil
}
