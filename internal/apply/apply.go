package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// fieldOwner owns what is created, as it owns what is applied.
const fieldOwner = lws.FieldOwner

// apply makes fields true on the exact version that was judged. The API server
// refuses it when the object is gone, another, or changed since.
func (a *Actor) apply(ctx context.Context, what action.Apply) (Done, error) {
	if what.Adopter != nil {
		if err := a.alive(ctx, *what.Adopter); err != nil {
			return Done{}, err
		}
	}
	if err := a.reliable(ctx, what); err != nil {
		return Done{}, err
	}
	version, err := a.ownAsApplied(ctx, what)
	if err != nil {
		return Done{}, err
	}
	fields, err := applied(what.Object, what.Onto, version)
	if err != nil {
		return Done{}, err
	}
	options := []client.ApplyOption{client.FieldOwner(what.FieldOwner), client.ForceOwnership}
	if what.Onto.APIVersion != "" {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	err = a.writer.Apply(ctx, fields, options...)
	return Done{UID: what.Onto.UID, Generation: generationOf(fields)}, quiet(err)
}

// ownAsApplied turns the fields that a create left to its manager into applied
// ones, and returns the version then. Without this, a field dropped from a later
// apply would stay, still owned by the create.
func (a *Actor) ownAsApplied(ctx context.Context, what action.Apply) (string, error) {
	if what.FieldOwner != fieldOwner || what.Applied {
		return what.Onto.ResourceVersion, nil // creates left nothing to this manager
	}
	object, err := emptyOf(what.Onto)
	if err != nil {
		return "", err
	}
	if err := a.live.Get(ctx, types.NamespacedName{Namespace: what.Onto.Namespace, Name: what.Onto.Name}, object); err != nil {
		return "", quiet(err)
	}
	if object.GetUID() != what.Onto.UID || object.GetResourceVersion() != what.Onto.ResourceVersion {
		return "", fmt.Errorf("%s changed: %w", what.Onto, ErrStale)
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(object, sets.New(what.FieldOwner), what.FieldOwner)
	if err != nil || len(patch) == 0 {
		return what.Onto.ResourceVersion, err
	}
	if err := a.writer.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch), patchOptions(what.Onto)...); err != nil {
		return "", quiet(err)
	}
	return object.GetResourceVersion(), nil
}

// applied is the apply configuration of an object, meant for an incarnation at the
// given version.
func applied(object action.Object, onto identity.Ref, version string) (runtime.ApplyConfiguration, error) {
	encoded, err := encode(object, onto, version)
	if err != nil {
		return nil, err
	}
	if onto.APIVersion != "" {
		return appliedForeign(encoded)
	}
	var fields runtime.ApplyConfiguration
	switch onto.Kind {
	case identity.KindStatefulSet:
		fields = &appsv1ac.StatefulSetApplyConfiguration{}
	case identity.KindControllerRevision:
		fields = &appsv1ac.ControllerRevisionApplyConfiguration{}
	case identity.KindService:
		fields = &corev1ac.ServiceApplyConfiguration{}
	default:
		return nil, fmt.Errorf("apply %s: no such kind", onto)
	}
	return fields, json.Unmarshal(encoded, fields)
}

// encode writes the fields that an object sets, with the identity it is meant
// for. What the object leaves zero is left out: an empty field would be
// owned, and would empty what others wrote.
func encode(object action.Object, onto identity.Ref, version string) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object.DeepCopyObject())
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", onto, err)
	}
	delete(fields, "status")
	if partial(object) {
		delete(fields, "spec")
	}
	if spec, part := partOfSpec(object); part {
		fields["spec"] = spec
	}
	if revision, ok := object.(*appsv1.ControllerRevision); ok && revision.Revision == 0 {
		delete(fields, "revision")
	}
	prune(fields)
	fields["apiVersion"] = cmp.Or(onto.APIVersion, apiVersionOf(onto.Kind))
	fields["kind"] = string(onto.Kind)
	metadata, ok := fields["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		fields["metadata"] = metadata
	}
	metadata["namespace"] = onto.Namespace
	metadata["name"] = onto.Name
	if onto.UID != "" {
		metadata["uid"] = string(onto.UID)
	}
	metadata["resourceVersion"] = version
	return json.Marshal(fields)
}

// partial tells whether an object carries metadata only.
func partial(object action.Object) bool {
	switch object := object.(type) {
	case *appsv1.StatefulSet:
		return equality.Semantic.DeepEqual(object.Spec, appsv1.StatefulSetSpec{})
	case *corev1.Service:
		return equality.Semantic.DeepEqual(object.Spec, corev1.ServiceSpec{})
	}
	return false
}

// partOfSpec returns what a StatefulSet without a selector says of its spec: it says
// nothing else, and not even an empty template must be written then.
func partOfSpec(object action.Object) (map[string]any, bool) {
	sts, ok := object.(*appsv1.StatefulSet)
	if !ok || sts.Spec.Selector != nil {
		return nil, false
	}
	spec := map[string]any{}
	if policy := sts.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		spec["persistentVolumeClaimRetentionPolicy"] = map[string]any{"whenDeleted": string(policy.WhenDeleted), "whenScaled": string(policy.WhenScaled)}
	}
	if replicas := sts.Spec.Replicas; replicas != nil {
		spec["replicas"] = int64(*replicas)
	}
	return spec, len(spec) > 0
}

// prune takes away nulls, and the empty status of embedded objects. Empty maps
// stay: "emptyDir: {}" says something.
func prune(fields map[string]any) {
	for key, value := range fields {
		switch value := value.(type) {
		case nil:
			delete(fields, key)
		case map[string]any:
			if key == "status" && len(value) == 0 {
				delete(fields, key)
				continue
			}
			prune(value)
		case []any:
			for _, item := range value {
				if item, ok := item.(map[string]any); ok {
					prune(item)
				}
			}
		}
	}
}

func generationOf(fields runtime.ApplyConfiguration) int64 {
	if sts, ok := fields.(*appsv1ac.StatefulSetApplyConfiguration); ok && sts.ObjectMetaApplyConfiguration != nil && sts.Generation != nil {
		return *sts.Generation
	}
	return 0
}

func uidOf(fields runtime.ApplyConfiguration) types.UID {
	if sts, ok := fields.(*appsv1ac.StatefulSetApplyConfiguration); ok && sts.ObjectMetaApplyConfiguration != nil && sts.UID != nil {
		return *sts.UID
	}
	return ""
}

func apiVersionOf(kind identity.Kind) string {
	switch kind {
	case identity.KindLeaderWorkerSet:
		return lwsv1.GroupVersion.String()
	case identity.KindStatefulSet, identity.KindControllerRevision:
		return "apps/v1"
	}
	return "v1"
}

// emptyOf is an object that carries the identity of ref and nothing else.
func emptyOf(ref identity.Ref) (client.Object, error) {
	if ref.APIVersion != "" {
		return foreign(ref), nil
	}
	meta := metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	switch ref.Kind {
	case identity.KindStatefulSet:
		return &appsv1.StatefulSet{ObjectMeta: meta}, nil
	case identity.KindControllerRevision:
		return &appsv1.ControllerRevision{ObjectMeta: meta}, nil
	case identity.KindService:
		return &corev1.Service{ObjectMeta: meta}, nil
	case identity.KindPod:
		return &corev1.Pod{ObjectMeta: meta}, nil
	case identity.KindPersistentVolumeClaim:
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta}, nil
	}
	return nil, fmt.Errorf("%s: no such kind", ref)
}
