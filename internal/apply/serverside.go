package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// apply applies fields onto the version that was judged. The API server refuses it if the object
// is gone, has another UID, or changed since.
func (a *Actor) apply(ctx context.Context, what action.Apply) error {
	if what.Adopter != nil {
		if err := a.alive(ctx, *what.Adopter); err != nil {
			return err
		}
	}
	if len(what.Relies) > 0 {
		if err := a.reliable(ctx, what); err != nil {
			return err
		}
	}
	var err error
	version := what.Onto.ResourceVersion
	if what.FieldOwner == fieldOwner && !what.Applied { // no other manager creates objects
		if version, err = a.ownAsApplied(ctx, what); err != nil {
			return err
		}
	}
	fields, err := applied(what.Object, what.Onto, version)
	if err != nil {
		return err
	}
	options := []client.ApplyOption{client.FieldOwner(what.FieldOwner), client.ForceOwnership}
	if isUncached(what.Onto) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	return quiet(a.writer.Apply(ctx, fields, options...))
}

// isUncached reports whether no read waits for the cache to show the object: the kind may not be served, or not be watched.
func isUncached(what identity.Ref) bool {
	return what.APIVersion != "" || what.Kind == identity.KindPodDisruptionBudget
}

// ownAsApplied turns the fields that a create left to its manager into applied ones, and returns the version then.
// Without this, a field dropped from a later apply would stay, still owned by the create.
func (a *Actor) ownAsApplied(ctx context.Context, what action.Apply) (string, error) {
	object, err := a.unchanged(ctx, what.Onto)
	if err != nil {
		return "", err
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(object, sets.New(what.FieldOwner), what.FieldOwner)
	if err != nil || len(patch) == 0 {
		return what.Onto.ResourceVersion, err
	}
	err = a.writer.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch), client.DisableReadYourWritesConsistency)
	return object.GetResourceVersion(), quiet(err)
}

// applied is the apply configuration of an object, meant for an incarnation at the given version.
// Kinds that are cached have typed ones: the next read waits for its cache to show the write.
func applied(object action.Object, onto identity.Ref, version string) (runtime.ApplyConfiguration, error) {
	encoded, err := encode(object, onto, version)
	if err != nil {
		return nil, err
	}
	if onto.APIVersion != "" {
		untyped := &unstructured.Unstructured{}
		err := json.Unmarshal(encoded, untyped)
		return client.ApplyConfigurationFromUnstructured(untyped), err
	}
	var fields runtime.ApplyConfiguration
	switch onto.Kind {
	case identity.KindStatefulSet:
		fields = &appsv1ac.StatefulSetApplyConfiguration{}
	case identity.KindDeployment:
		fields = &appsv1ac.DeploymentApplyConfiguration{}
	case identity.KindControllerRevision:
		fields = &appsv1ac.ControllerRevisionApplyConfiguration{}
	case identity.KindService:
		fields = &corev1ac.ServiceApplyConfiguration{}
	case identity.KindPodDisruptionBudget:
		fields = &policyv1ac.PodDisruptionBudgetApplyConfiguration{}
	case identity.KindLeaderWorkerSet, identity.KindDisaggregatedSetRoleScaler:
		fields = &configuration{}
	default:
		return nil, fmt.Errorf("apply %s: no such kind", onto)
	}
	return fields, json.Unmarshal(encoded, fields)
}

// configuration is the apply configuration of a kind that has no generated one.
type configuration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`
	Spec                                   map[string]any `json:"spec,omitempty"`
}

// IsApplyConfiguration implements runtime.ApplyConfiguration.
func (*configuration) IsApplyConfiguration() {}

// encode writes the fields that an object sets, with the identity it is meant for. The statuses of an object and of its
// claim templates are left out: they would be owned, and would empty what others wrote. Generated apply
// configurations leave out nulls.
func encode(object action.Object, onto identity.Ref, version string) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object.DeepCopyObject())
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", onto, err)
	}
	delete(fields, "status")
	if fields["revision"] == int64(0) { // a ControllerRevision that keeps its number
		delete(fields, "revision")
	}
	spec, _ := fields["spec"].(map[string]any)
	containers, _, _ := unstructured.NestedFieldNoCopy(spec, "leaderWorkerTemplate", "workerTemplate", "spec", "containers")
	if onto.Kind == identity.KindStatefulSet && spec["selector"] == nil ||
		onto.Kind == identity.KindLeaderWorkerSet && containers == nil { // not even an empty template must be written then
		maps.DeleteFunc(spec, func(field string, _ any) bool {
			return field != "replicas" && field != "persistentVolumeClaimRetentionPolicy"
		})
	}
	if len(spec) == 0 {
		delete(fields, "spec")
	}
	templates, _ := spec["volumeClaimTemplates"].([]any)
	for _, template := range templates {
		template, _ := template.(map[string]any)
		delete(template, "status")
	}
	meant := unstructured.Unstructured{Object: fields}
	meant.SetAPIVersion(cmp.Or(onto.APIVersion, onto.Kind.APIVersion()))
	meant.SetKind(string(onto.Kind))
	meant.SetNamespace(onto.Namespace)
	meant.SetName(onto.Name)
	meant.SetResourceVersion(version)
	if onto.UID != "" {
		meant.SetUID(onto.UID)
	}
	return json.Marshal(fields)
}
