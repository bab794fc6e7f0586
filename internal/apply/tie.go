package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/volumes"
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
	claim := volumes.Named(what.Object.Namespace, what.Object.Name)
	err = a.writer.Patch(ctx, claim, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(lws.TieFieldOwner))
	if err != nil {
		return quiet(err)
	}
	if !belongTo(what.Owners, claim.OwnerReferences) {
		return fmt.Errorf("something in the way of the write, a webhook perhaps, has it belong to %s", ownersNamed(claim.OwnerReferences))
	}
	return nil
}

// belongTo tells whether a claim came out of its write with the owners it was given.
// The same write again would meet the same webhook: it is for the back-off.
func belongTo(want, have []metav1.OwnerReference) bool {
	return len(want) == len(have) && !slices.ContainsFunc(want, func(owner metav1.OwnerReference) bool {
		return !slices.ContainsFunc(have, func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
	})
}

func ownersNamed(references []metav1.OwnerReference) string {
	if len(references) == 0 {
		return "nobody"
	}
	var named []string
	for _, o := range references {
		named = append(named, o.Kind+" "+o.Name)
	}
	return strings.Join(named, ", ")
}

func tying(what action.Tie) ([]byte, error) {
	owners := what.Owners
	if owners == nil {
		owners = []metav1.OwnerReference{}
	}
	metadata := map[string]any{
		"uid": what.Object.UID, "resourceVersion": what.Object.ResourceVersion, "ownerReferences": owners,
	}
	if len(what.Annotations) > 0 {
		annotations := map[string]any{}
		for key, value := range what.Annotations {
			if annotations[key] = value; value == "" {
				annotations[key] = nil
			}
		}
		metadata["annotations"] = annotations
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}
