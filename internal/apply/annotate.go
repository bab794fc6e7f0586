package apply

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
)

// annotate merges annotations into the exact version that was judged. What is
// written is watched by caches of its own kind, if at all: no look waits to see it.
func (a *Actor) annotate(ctx context.Context, what action.Annotate) (Done, error) {
	patch, err := annotating(what)
	if err != nil {
		return Done{}, err
	}
	object := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersionOf(what.Object.Kind), Kind: string(what.Object.Kind)},
		ObjectMeta: metav1.ObjectMeta{Namespace: what.Object.Namespace, Name: what.Object.Name},
	}
	err = a.writer.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(fieldOwner), client.DisableReadYourWritesConsistency)
	return Done{UID: object.UID, Generation: object.Generation, ResourceVersion: object.ResourceVersion}, quiet(err)
}

func annotating(what action.Annotate) ([]byte, error) {
	annotations := map[string]any{}
	for key, value := range what.Annotations {
		annotations[key] = value
		if value == "" {
			annotations[key] = nil
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": what.Object.UID, "resourceVersion": what.Object.ResourceVersion, "annotations": annotations,
	}})
}
