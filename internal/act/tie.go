package act

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
)

// tie replaces the owners of the exact version of a volume claim that was judged.
// The claim is named as the caches know it, by its metadata, so that the next look
// waits to see the write.
func (a *Actor) tie(ctx context.Context, what action.Tie) error {
	if what.To != nil {
		if err := a.alive(ctx, *what.To); err != nil {
			return err
		}
	}
	patch, err := tying(what)
	if err != nil {
		return err
	}
	claim := lws.NewVolume(what.Object.Namespace, what.Object.Name)
	return quiet(a.writer.Patch(ctx, claim, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(lws.TieFieldOwner)))
}

func tying(what action.Tie) ([]byte, error) {
	owners := what.Owners
	if owners == nil {
		owners = []metav1.OwnerReference{}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": what.Object.UID, "resourceVersion": what.Object.ResourceVersion, "ownerReferences": owners,
	}})
}
