package lws

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Warnings collects the warnings of the API server.
type Warnings []string

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *Warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	if code == 299 && text != "" { // the only code that Kubernetes uses
		*w = append(*w, text)
	}
}

// Apply returns the set as kubectl apply would have it stored, with the warnings of the API server.
// The set has no UID if the cluster does not have it yet.
func Apply(ctx context.Context, config *rest.Config, manifest *unstructured.Unstructured) (*lwsv1.LeaderWorkerSet, []string, error) {
	var warnings Warnings
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = &warnings
	c, err := client.New(config, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, nil, err
	}
	stored, err := apply(ctx, c, manifest.DeepCopy())
	if err != nil {
		return nil, nil, err
	}
	set := &lwsv1.LeaderWorkerSet{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, set)
	return set, warnings, err
}

// apply sends dry runs only.
func apply(ctx context.Context, c client.Client, manifest *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(manifest.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(manifest), live)
	strict := client.FieldValidation(metav1.FieldValidationStrict)
	switch {
	case apierrors.IsNotFound(err):
		err = c.Create(ctx, manifest, client.DryRunAll, strict)
		manifest.SetUID("") // of an object that was not stored
		return manifest, err
	case err != nil:
		return nil, err
	}
	patch, err := threeWay(manifest, live)
	if err != nil {
		return nil, err
	}
	err = c.Patch(ctx, live, client.RawPatch(types.MergePatchType, patch), client.DryRunAll, strict)
	return live, err
}

// threeWay returns the patch that kubectl apply sends for a custom resource. A field that the manifest
// does not name stays, unless the last apply named it: it may be an autoscaler's.
func threeWay(manifest, live *unstructured.Unstructured) ([]byte, error) {
	current, err := live.MarshalJSON()
	if err != nil {
		return nil, err
	}
	modified, err := manifest.MarshalJSON()
	if err != nil {
		return nil, err
	}
	last := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch([]byte(last), modified, current)
	if err != nil {
		return nil, fmt.Errorf("compare %s with the stored set: %w", manifest.GetName(), err)
	}
	return patch, nil
}
