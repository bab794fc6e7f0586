package lws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/file"
)

const (
	// mostRead is how many MiB a manifest has.
	mostRead = 16
	// mostOfOne is how many MiB of them are one document: what an API server reads of a request.
	mostOfOne = 3
)

// planned are the kinds of a file that a plan shows.
var planned = []schema.GroupVersionKind{lwsv1.GroupVersion.WithKind("LeaderWorkerSet"), dsv1.GroupVersion.WithKind("DisaggregatedSet")}

// ReadManifest returns the LeaderWorkerSets and DisaggregatedSets of a file; the path "-" means in. skipped describes the
// objects of other kinds.
func ReadManifest(path string, in io.Reader) (sets []*unstructured.Unstructured, skipped []string, err error) {
	builder := resource.NewLocalBuilder().Unstructured().Flatten()
	if path == "-" {
		path = "standard input"
		text, failed := file.ReadAll(in, mostRead)
		err = errors.Join(failed, add(builder, path, text))
	} else {
		err = addFiles(builder, path)
	}
	var found []*resource.Info
	if err == nil {
		found, err = builder.Do().Infos()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w; give the path of a YAML or JSON file, or - for standard input", err)
	}
	for _, info := range found {
		object := info.Object.(*unstructured.Unstructured)
		if !slices.Contains(planned, object.GroupVersionKind()) {
			skipped = append(skipped, fmt.Sprintf("%s %s %q is not a LeaderWorkerSet or DisaggregatedSet", object.GetAPIVersion(), object.GetKind(), object.GetName()))
			continue
		}
		text, err := object.MarshalJSON() // the builder checks the metadata of a document, but not of the items of its list
		if err = errors.Join(err, json.Unmarshal(text, &metav1.PartialObjectMetadata{})); err != nil {
			return nil, nil, fmt.Errorf("%s: the metadata of %s %q: %w", path, object.GetKind(), object.GetName(), err)
		}
		sets = append(sets, object)
	}
	if len(sets) == 0 {
		return nil, nil, fmt.Errorf("%s holds no LeaderWorkerSet; expected apiVersion %s, kind LeaderWorkerSet, or %s, kind DisaggregatedSet; %s", path, lwsv1.GroupVersion, dsv1.GroupVersion, strings.Join(skipped, ", "))
	}
	return sets, skipped, nil
}

// addFiles adds a file, or the files of a directory.
func addFiles(builder *resource.Builder, path string) error {
	files, err := resource.ExpandPathsToFileVisitors(nil, path, false, resource.FileExtensions, nil)
	if err != nil {
		return err
	}
	total := 0
	for _, found := range files {
		name := found.(*resource.FileVisitor).Path
		text, err := file.Read(name, mostRead)
		if total += len(text); err == nil && total > mostRead<<20 {
			err = fmt.Errorf("the files of %s have more than %d MiB", path, mostRead)
		}
		if err := errors.Join(err, add(builder, name, text)); err != nil {
			return err
		}
	}
	return nil
}

func add(builder *resource.Builder, name string, text []byte) error {
	builder.Stream(bytes.NewReader(text), name)
	if err := file.CheckYAML(text, mostOfOne); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Apply returns the set as kubectl apply would have it stored, with the warnings of the API server.
// The set has no UID if the cluster does not have it yet.
func Apply[Set any](ctx context.Context, config *rest.Config, manifest *unstructured.Unstructured) (set *Set, warnings []string, err error) {
	var said strings.Builder
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NewWarningWriter(&said, rest.WarningWriterOptions{})
	c, err := client.New(config, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, nil, err
	}
	stored, err := dryRun(ctx, c, manifest.DeepCopy())
	if err != nil {
		return nil, nil, err
	}
	for warning := range strings.Lines(said.String()) {
		warnings = append(warnings, strings.TrimPrefix(strings.TrimSpace(warning), "Warning: "))
	}
	set, unknown, err := decoded[Set](stored)
	return set, append(warnings, unknown...), err
}

// decoded returns a set, and a warning of each field that the API server knows and this version lacks.
func decoded[Set any](stored *unstructured.Unstructured) (set *Set, warnings []string, err error) {
	set = new(Set)
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(stored.Object, set, true)
	strict, is := runtime.AsStrictDecodingError(err)
	if !is {
		return set, nil, err
	}
	for _, unknown := range strict.Errors() {
		warnings = append(warnings, unknown.Error()+": the plan is without it, and an operator of this version leaves the set alone")
	}
	return set, warnings, nil
}

// dryRun sends dry runs only.
func dryRun(ctx context.Context, c client.Client, manifest *unstructured.Unstructured) (*unstructured.Unstructured, error) {
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
	modified, failed := manifest.MarshalJSON()
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	last := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch([]byte(last), modified, current)
	if err != nil {
		return nil, fmt.Errorf("compare %s with the stored set: %w", manifest.GetName(), err)
	}
	return patch, nil
}

// Room returns the nodes, and the pods of all namespaces: a user may lack the right to list them.
func (s *Session) Room(ctx context.Context) (nodes corev1.NodeList, pods corev1.PodList, err error) {
	if err = s.Live.List(ctx, &nodes); err == nil {
		err = s.Live.List(ctx, &pods)
	}
	return nodes, pods, err
}
