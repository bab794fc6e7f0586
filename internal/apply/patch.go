package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/pvc"
)

// errNotJudged means that a write of PVC protection came from no decision.
var errNotJudged = errors.New("a release or a lifted gate comes from a read of pods")

type fields = map[string]any

// merge patches object, which has the name of onto. The API server refuses the patch for anything but the incarnation
// and the version of onto. A list is replaced whole: any other change made the version another.
func (a *Actor) merge(ctx context.Context, object client.Object, onto identity.Ref, metadata, others fields, options ...client.PatchOption) error {
	if onto.UID == "" || onto.ResourceVersion == "" {
		return fmt.Errorf("patch %s: no incarnation", onto)
	}
	metadata["uid"], metadata["resourceVersion"] = onto.UID, onto.ResourceVersion
	whole := fields{"metadata": metadata}
	maps.Copy(whole, others)
	patch, err := json.Marshal(whole)
	if err != nil {
		return err
	}
	options = append([]client.PatchOption{client.FieldOwner(fieldOwner)}, options...)
	return a.writer.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), options...)
}

// change patches an object whose cache no read waits for. It returns ErrGone if the object does not exist.
func (a *Actor) change(ctx context.Context, onto identity.Ref, metadata, others fields) error {
	return orGone(a.merge(ctx, metadataOf(onto), onto, metadata, others, client.DisableReadYourWritesConsistency))
}

// withNulls returns values with null for those to remove, which are empty.
func withNulls(values map[string]string) fields {
	all := fields{}
	for key, value := range values {
		if all[key] = value; value == "" {
			all[key] = nil
		}
	}
	return all
}

// listed returns a list that is not null when it is empty: null would leave the field as it is.
func listed[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// annotate merges annotations into the version that was judged.
func (a *Actor) annotate(ctx context.Context, what action.Annotate) (Done, error) {
	object := metadataOf(what.Object)
	err := a.merge(ctx, object, what.Object, fields{"annotations": withNulls(what.Annotations)}, nil, client.DisableReadYourWritesConsistency)
	return Done{ResourceVersion: object.ResourceVersion}, quiet(err)
}

// relabel merges labels into the version of a revision that was judged. An apply could remove only labels that it owns.
func (a *Actor) relabel(ctx context.Context, what action.Relabel) error {
	var options []client.PatchOption
	if name, changed := what.Labels[lwsv1.SetNameLabelKey]; changed && name == "" {
		options = append(options, client.DisableReadYourWritesConsistency) // it leaves the caches
	}
	others := fields{}
	if what.Number != 0 {
		others["revision"] = what.Number
	}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: what.Object.Namespace, Name: what.Object.Name}}
	return quiet(a.merge(ctx, revision, what.Object, fields{"labels": withNulls(what.Labels)}, others, options...))
}

// setOwners replaces the owners of the version of a PVC that was judged. The PVC has the form
// that the caches hold: the next read waits to see the write.
func (a *Actor) setOwners(ctx context.Context, what action.SetOwner) error {
	if what.To != nil {
		if err := a.alive(ctx, *what.To); err != nil {
			return err
		}
	}
	metadata := fields{"ownerReferences": listed(what.Owners)}
	if len(what.Annotations) > 0 {
		metadata["annotations"] = withNulls(what.Annotations)
	}
	written := volumes.Named(what.Object.Namespace, what.Object.Name)
	if err := a.merge(ctx, written, what.Object, metadata, nil, client.FieldOwner(lws.TieFieldOwner)); err != nil {
		return quiet(err)
	}
	if !haveUIDs(written.OwnerReferences, what.Owners) { // the same write again would meet the same webhook
		return fmt.Errorf("a webhook changed the owners to %s", ownersNamed(written.OwnerReferences))
	}
	return nil
}

func haveUIDs(have, want []metav1.OwnerReference) bool {
	return len(want) == len(have) && !slices.ContainsFunc(want, func(owner metav1.OwnerReference) bool {
		return !slices.ContainsFunc(have, func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
	})
}

func ownersNamed(references []metav1.OwnerReference) string {
	named := make([]string, 0, len(references))
	for _, o := range references {
		named = append(named, o.Kind+" "+o.Name)
	}
	return "[" + strings.Join(named, ", ") + "]"
}

// setFinalizers replaces the finalizers of the version that was judged, and changes its annotations.
func (a *Actor) setFinalizers(ctx context.Context, what action.SetFinalizers) error {
	metadata := fields{"finalizers": listed(what.Finalizers)}
	if len(what.Annotations) > 0 {
		metadata["annotations"] = withNulls(what.Annotations)
	}
	return a.change(ctx, what.Object, metadata, nil)
}

// mergeByKey returns a patch of the incarnation of onto. Lists are merged by their keys, so it may need no version:
// what others changed stays.
func mergeByKey(onto identity.Ref, metadata, others fields) (client.Patch, error) {
	if onto.UID == "" {
		return nil, fmt.Errorf("patch %s: no incarnation", onto)
	}
	metadata["uid"] = onto.UID
	whole := fields{"metadata": metadata}
	maps.Copy(whole, others)
	patch, err := json.Marshal(whole)
	return client.RawPatch(types.StrategicMergePatchType, patch), err
}

// ungate removes one gate of a pod. Annotations are changed in the version that was judged: others write them too.
// The answer shows the pod: what it is to own next in the reconcile needs no other read.
func (a *Actor) ungate(ctx context.Context, what action.Ungate) error {
	metadata := fields{}
	if len(what.Annotations) > 0 {
		metadata["annotations"], metadata["resourceVersion"] = withNulls(what.Annotations), what.Pod.ResourceVersion
	}
	patch, err := mergeByKey(what.Pod, metadata, fields{"spec": fields{"schedulingGates": []fields{{"name": what.Gate, "$patch": "delete"}}}})
	if err != nil {
		return err
	}
	pod := metadataOf(what.Pod)
	if err := a.writer.Patch(ctx, pod, patch, client.FieldOwner(fieldOwner), client.DisableReadYourWritesConsistency); err != nil {
		return orGone(err)
	}
	a.foundAlive(pod)
	return nil
}

// setCondition sets one condition of a pod: kubelets write its status too.
func (a *Actor) setCondition(ctx context.Context, what action.SetCondition) error {
	var condition any = what.Condition
	if what.Condition.Status == "" {
		condition = fields{"type": what.Condition.Type, "$patch": "delete"}
	}
	patch, err := mergeByKey(what.Object, fields{}, fields{"status": fields{"conditions": []any{condition}}})
	if err != nil {
		return err
	}
	return orGone(a.writer.Status().Patch(ctx, metadataOf(what.Object), patch, client.FieldOwner(fieldOwner), client.DisableReadYourWritesConsistency))
}

// release removes a finalizer from the version that was judged.
func (a *Actor) release(ctx context.Context, what pvc.Release) error {
	if what.Takes() == "" {
		return errNotJudged
	}
	return a.change(ctx, what.Target(), fields{"finalizers": listed(what.Finalizers())}, nil)
}

// lift removes the gate of mode strict from the version of a pod that was judged.
func (a *Actor) lift(ctx context.Context, what pvc.Lifting) error {
	if what.Target().UID == "" {
		return errNotJudged
	}
	return a.change(ctx, what.Target(), fields{}, fields{"spec": fields{"schedulingGates": listed(what.Gates())}})
}
