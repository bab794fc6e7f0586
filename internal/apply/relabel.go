package apply

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
)

// relabel merges labels into the exact version that was judged. An apply could
// take away only what it owns, and whoever made the object may own its labels.
func (a *Actor) relabel(ctx context.Context, what action.Relabel) error {
	if err := a.standing(ctx, what.Relies); err != nil {
		return err
	}
	object, err := emptyOf(what.Object)
	if err != nil {
		return err
	}
	patch, err := relabelling(what)
	if err != nil {
		return err
	}
	options := []client.PatchOption{client.FieldOwner(fieldOwner)}
	if name, changed := what.Labels[lwsv1.SetNameLabelKey]; changed && name == "" {
		options = append(options, client.DisableReadYourWritesConsistency) // it leaves the caches
	}
	return quiet(a.writer.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), options...))
}

func relabelling(what action.Relabel) ([]byte, error) {
	labels := map[string]any{}
	for key, value := range what.Labels {
		labels[key] = value
		if value == "" {
			labels[key] = nil
		}
	}
	patch := map[string]any{"metadata": map[string]any{
		"uid": what.Object.UID, "resourceVersion": what.Object.ResourceVersion, "labels": labels,
	}}
	if what.Number != 0 {
		patch["revision"] = what.Number
	}
	return json.Marshal(patch)
}
