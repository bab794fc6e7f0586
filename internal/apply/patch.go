package apply

import (
	"context"
	"encoding/json"
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
)

type fields = map[string]any

// merge patches object, which has the name of onto. The API server refuses the patch for anything but the incarnation
// and the version of onto. A list is replaced whole: any other change made the version another.
func (a *Actor) merge(ctx context.Context, object client.Object, onto identity.Ref, metadata, others fields, options ...client.PatchOption) error {
	metadata["resourceVersion"] = onto.ResourceVersion
	options = append([]client.PatchOption{client.FieldOwner(fieldOwner)}, options...)
	return a.writer.Patch(ctx, object, patch{types.MergePatchType, onto, metadata, others}, options...)
}

// patch is of the incarnation of onto. A strategic merge merges lists by their keys, so it may need no version: what
// others changed stays.
type patch struct {
	kind             types.PatchType
	onto             identity.Ref
	metadata, others fields
}

// Type implements client.Patch.
func (p patch) Type() types.PatchType { return p.kind }

// Data implements client.Patch. After an error, nothing is asked of the API server.
func (p patch) Data(client.Object) ([]byte, error) {
	if p.onto.UID == "" || p.metadata["resourceVersion"] == "" {
		return nil, fmt.Errorf("patch %s: no incarnation", p.onto)
	}
	p.metadata["uid"] = p.onto.UID
	whole := fields{"metadata": p.metadata}
	maps.Copy(whole, p.others)
	return json.Marshal(whole)
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
func (a *Actor) annotate(ctx context.Context, what action.Annotate) (version string, err error) {
	object := metadataOf(what.Object)
	err = a.merge(ctx, object, what.Object, fields{"annotations": withNulls(what.Annotations)}, nil, client.DisableReadYourWritesConsistency)
	return object.ResourceVersion, quiet(err)
}

// scale merges the replicas into the version that was judged.
func (a *Actor) scale(ctx context.Context, what action.Scale) error {
	spec := fields{"replicas": what.Replicas}
	if what.GroupReplacementPolicy != "" {
		spec["groupReplacementPolicy"] = what.GroupReplacementPolicy
	}
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: what.Object.Namespace, Name: what.Object.Name}}
	return quiet(a.merge(ctx, set, what.Object, fields{"annotations": withNulls(what.Annotations)}, fields{"spec": spec}))
}

// relabel merges labels into the version that was judged. An apply could remove only labels that it owns.
func (a *Actor) relabel(ctx context.Context, what action.Relabel) error {
	others := fields{}
	if what.Number != 0 {
		others["revision"] = what.Number
	}
	if what.Selector != nil {
		others["spec"] = fields{"selector": withNulls(what.Selector)}
	}
	metadata := fields{"labels": withNulls(what.Labels)}
	if name, changed := what.Labels[lwsv1.SetNameLabelKey]; changed && name == "" || what.Uncached { // it leaves the caches
		return quiet(a.merge(ctx, metadataOf(what.Object), what.Object, metadata, others, client.DisableReadYourWritesConsistency))
	}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: what.Object.Namespace, Name: what.Object.Name}}
	return quiet(a.merge(ctx, revision, what.Object, metadata, others))
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

// ungate removes one gate of a pod. Annotations are changed in the version that was judged: others write them too.
// The answer shows the pod: what it is to own next in the reconcile needs no other read.
func (a *Actor) ungate(ctx context.Context, what action.Ungate) error {
	metadata := fields{}
	if len(what.Annotations) > 0 {
		metadata["annotations"], metadata["resourceVersion"] = withNulls(what.Annotations), what.Pod.ResourceVersion
	}
	gates := fields{"spec": fields{"schedulingGates": []fields{{"name": what.Gate, "$patch": "delete"}}}}
	ungated := patch{types.StrategicMergePatchType, what.Pod, metadata, gates}
	pod := metadataOf(what.Pod)
	if err := a.writer.Patch(ctx, pod, ungated, client.FieldOwner(fieldOwner), client.DisableReadYourWritesConsistency); err != nil {
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
	set := patch{types.StrategicMergePatchType, what.Object, fields{}, fields{"status": fields{"conditions": []any{condition}}}}
	return orGone(a.writer.Status().Patch(ctx, metadataOf(what.Object), set, client.FieldOwner(fieldOwner), client.DisableReadYourWritesConsistency))
}
