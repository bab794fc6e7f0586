package lwscache

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/config/crd"
	"lockstep.dev/lockstep/internal/definition"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// DefinitionName is the name of the CustomResourceDefinition of sets.
const DefinitionName = "leaderworkersets.leaderworkerset.x-k8s.io"

// Definition compares the CustomResourceDefinition of sets in the cluster with that of this version. It is safe for
// concurrent use.
type Definition struct {
	live client.Reader

	mu sync.Mutex
	// read is the UID and generation that were compared. It is empty before, and after they changed.
	read string
	// theirs and ours are the schemas, if ours lacks fields of spec.
	theirs, ours *definition.Schema
}

// NewDefinition returns a Definition that reads through live, which must not be a cache.
func NewDefinition(live client.Reader) *Definition { return &Definition{live: live} }

// Changed makes the next read of a set read the definition too, unless it was read at this
// generation. It reports whether a reading is void.
func (d *Definition) Changed(is metav1.Object) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read == "" || d.read == generationOf(is) {
		return false
	}
	d.read = ""
	return true
}

func generationOf(is metav1.Object) string { return fmt.Sprint(is.GetUID(), is.GetGeneration()) }

// BeyondOf returns the fields of a stored set that this version lacks, with their values. A
// default of the definition counts as no value. While this version lacks nothing, no set is read.
func (d *Definition) BeyondOf(ctx context.Context, key types.NamespacedName) (found []string, err error) {
	theirs, ours, err := d.compare(ctx)
	if err != nil || theirs == nil {
		return nil, err
	}
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	if err := d.live.Get(ctx, key, set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	for _, f := range definition.Beyond(map[string]any{"spec": set.Object["spec"]}, theirs, ours) {
		value, err := json.Marshal(f.Value)
		if err != nil {
			return nil, err
		}
		found = append(found, f.Path+"="+string(value))
	}
	return found, nil
}

// compare returns the schemas of both definitions, or nothing if ours has all fields of spec.
func (d *Definition) compare(ctx context.Context) (theirs, ours *definition.Schema, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read != "" {
		return d.theirs, d.ours, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apiextensions.k8s.io/v1")
	list.SetKind("CustomResourceDefinitionList")
	if err := d.live.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: DefinitionName}); err != nil {
		return nil, nil, fmt.Errorf("read the definition of LeaderWorkerSets: %w", err)
	}
	ourManifest, err := crd.Files.ReadFile("leaderworkerset.x-k8s.io_leaderworkersets.yaml")
	if err != nil {
		return nil, nil, err
	}
	read := "none"
	for i := range list.Items {
		read = generationOf(&list.Items[i])
		if theirs, ours, err = definition.Compare(&list.Items[i], ourManifest); err != nil {
			return nil, nil, fmt.Errorf("compare the definition of LeaderWorkerSets: %w", err)
		}
	}
	d.read, d.theirs, d.ours = read, theirs, ours
	return theirs, ours, nil
}

// beyond returns what a set has that this version lacks: fields and values, or what its leaders show of a field that
// the API server removed since.
func (r *reading) beyond(ctx context.Context, leaders *appsv1.StatefulSet) ([]string, error) {
	found, err := workload.Unmet(r.set, r.Scheduler)
	if r.former != "" {
		found = append(found, r.former)
	}
	if r.Definition == nil || err != nil || len(found) > 0 {
		return found, err
	}
	if leaders != nil && r.set.Spec.Scheduling == nil && leaders.Spec.Template.Annotations[lwsv1.WorkloadNameAnnotationKey] != "" {
		return []string{fmt.Sprintf("annotation %s of statefulset %s", lwsv1.WorkloadNameAnnotationKey, leaders.Name)}, nil
	}
	return r.Definition.BeyondOf(ctx, client.ObjectKeyFromObject(r.set))
}
