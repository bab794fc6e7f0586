package apply

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
)

// condition replaces one condition of a claim. Conditions are merged by their type,
// so that those of others stay, which the caches do not keep.
func (a *Actor) condition(ctx context.Context, what action.Condition) error {
	patch, err := onlyOnto(what.Claim, map[string]any{}, map[string]any{
		"status": map[string]any{"conditions": []corev1.PersistentVolumeClaimCondition{what.Is}},
	})
	if err != nil {
		return err
	}
	return marked(a.writer.Status().Patch(ctx, bearing(what.Claim), client.RawPatch(types.StrategicMergePatchType, patch),
		client.FieldOwner(fieldOwner), client.DisableReadYourWritesConsistency))
}
