package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// errJudged says that a release came from no judgement.
var errJudged = errors.New("nothing was judged: a release comes from a reading of pods")

// release takes a finalizer from the exact version that was judged.
func (a *Actor) release(ctx context.Context, what pvc.Release) error {
	if what.Takes() == "" {
		return errJudged
	}
	return a.mark(ctx, what.Target(), map[string]any{"finalizers": listed(what.Finalizers())})
}

// setFinalizers replaces the finalizers of the exact version that was judged.
func (a *Actor) setFinalizers(ctx context.Context, what action.SetFinalizers) error {
	return a.mark(ctx, what.Object, map[string]any{"finalizers": listed(what.Finalizers)})
}

// dropUnused removes one condition from the exact version that was judged. The list is merged by
// type: the caches keep no other condition.
func (a *Actor) dropUnused(ctx context.Context, what pvc.DropUnused) error {
	unused := map[string]any{"type": corev1.PersistentVolumeClaimUnused, "$patch": "delete"}
	patch, err := onlyOnto(what.PVC, map[string]any{}, map[string]any{"status": map[string]any{"conditions": []any{unused}}})
	if err != nil {
		return err
	}
	return marked(a.writer.Status().Patch(ctx, bearing(what.PVC), client.RawPatch(types.StrategicMergePatchType, patch),
		client.FieldOwner(fieldOwner), client.DisableReadYourWritesConsistency))
}

// record writes the use record onto the exact version that was read.
func (a *Actor) record(ctx context.Context, what pvc.Recording) error {
	var value any // none takes the record away
	if what.Value() != "" {
		value = what.Value()
	}
	return a.mark(ctx, what.Target(), map[string]any{"annotations": map[string]any{pvc.UsersAnnotation: value}})
}

// mark merges into the metadata of an object, if it still is what was judged. A
// list goes as a whole: nobody else's change is lost by it, since anybody's would
// have made the version another. It is ErrGone when there is nothing left to mark.
func (a *Actor) mark(ctx context.Context, onto identity.Ref, metadata map[string]any) error {
	return a.merge(ctx, onto, metadata, nil)
}

// merge is mark for more of an object than its metadata.
func (a *Actor) merge(ctx context.Context, onto identity.Ref, metadata, document map[string]any) error {
	patch, err := onlyOnto(onto, metadata, document)
	if err != nil {
		return err
	}
	return marked(a.writer.Patch(ctx, bearing(onto), client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(fieldOwner), client.DisableReadYourWritesConsistency))
}

// onlyOnto is a patch that is refused by anything but the incarnation and the version.
func onlyOnto(onto identity.Ref, metadata, document map[string]any) ([]byte, error) {
	if onto.UID == "" || onto.ResourceVersion == "" {
		return nil, fmt.Errorf("mark %s: no incarnation", onto)
	}
	metadata["uid"], metadata["resourceVersion"] = onto.UID, onto.ResourceVersion
	whole := map[string]any{"metadata": metadata}
	maps.Copy(whole, document)
	patch, err := json.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("mark %s: %w", onto, err)
	}
	return patch, nil
}

// bearing is an object of the kind and the name, of which nothing but metadata is read.
func bearing(onto identity.Ref) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersionOf(onto.Kind), Kind: string(onto.Kind)},
		ObjectMeta: metav1.ObjectMeta{Namespace: onto.Namespace, Name: onto.Name},
	}
}

func marked(err error) error {
	if apierrors.IsNotFound(err) && !denied(err) {
		return ErrGone
	}
	return quiet(err)
}

// listed is a list that is not null when it is empty: null would be left as it is
// in some places, and taken for the whole field in others.
func listed(words []string) []string {
	if words == nil {
		return []string{}
	}
	return words
}
