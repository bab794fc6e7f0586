package lwscache

import (
	"context"
	"fmt"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/config/crd"
	"lockstep.dev/lockstep/internal/definition"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// DefinitionName is the name of the CustomResourceDefinition of sets.
const DefinitionName = "leaderworkersets.leaderworkerset.x-k8s.io"

// Definition finds the fields of stored sets that this version lacks. It is safe for
// concurrent use.
type Definition struct {
	live client.Reader
	// told is called with the paths that the definition has and this version lacks.
	told func([]string)

	mu sync.Mutex
	// read is nil until the definition was read, and after it changed.
	read *comparison
}

// comparison is one reading of the definition in the cluster.
type comparison struct {
	uid        types.UID
	generation int64
	// beyond are the paths that the definition has and this version lacks. Without any, the
	// schemas are nil.
	beyond       []string
	stored, ours *definition.Schema
}

// NewDefinition returns a Definition that reads through live, which must not be a cache. told is
// called with what each reading of the definition has and this version lacks.
func NewDefinition(live client.Reader, told func(paths []string)) *Definition {
	return &Definition{live: live, told: told}
}

// Changed makes the next read of a set read the definition too, unless it was read at this
// generation. It reports whether a reading is void.
func (d *Definition) Changed(is metav1.Object) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read == nil || d.read.uid == is.GetUID() && d.read.generation == is.GetGeneration() {
		return false
	}
	d.read = nil
	return true
}

// BeyondOf returns the fields of a stored set that this version lacks, with their values. A
// default of the definition counts as no value.
func (d *Definition) BeyondOf(ctx context.Context, key types.NamespacedName) ([]string, error) {
	now, err := d.compare(ctx)
	if err != nil || len(now.beyond) == 0 {
		return nil, err
	}
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	if err := d.live.Get(ctx, key, set); err != nil {
		return nil, err
	}
	var found []string
	for _, f := range definition.Beyond(map[string]any{"spec": set.Object["spec"]}, now.stored, now.ours) {
		value, err := json.Marshal(f.Value)
		if err != nil {
			return nil, err
		}
		found = append(found, f.Path+"="+string(value))
	}
	return found, nil
}

// compare returns the comparison of the definition in the cluster with ours.
func (d *Definition) compare(ctx context.Context) (*comparison, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read != nil {
		return d.read, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apiextensions.k8s.io/v1")
	list.SetKind("CustomResourceDefinitionList")
	if err := d.live.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: DefinitionName}); err != nil {
		return nil, fmt.Errorf("read the definition of LeaderWorkerSets: %w", err)
	}
	now := &comparison{}
	if len(list.Items) > 0 {
		now.uid, now.generation = list.Items[0].GetUID(), list.Items[0].GetGeneration()
		if err := now.fill(&list.Items[0]); err != nil {
			return nil, fmt.Errorf("compare the definition of LeaderWorkerSets: %w", err)
		}
	}
	d.told(now.beyond)
	d.read = now
	return now, nil
}

func (c *comparison) fill(inCluster *unstructured.Unstructured) error {
	text, err := crd.Files.ReadFile("leaderworkerset.x-k8s.io_leaderworkersets.yaml")
	if err != nil {
		return err
	}
	embedded := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, embedded); err != nil {
		return err
	}
	if c.stored, _, err = definition.SchemaOf(inCluster, definition.IsStored); err != nil {
		return err
	}
	if c.ours, _, err = definition.SchemaOf(embedded, definition.IsStored); err != nil {
		return err
	}
	for _, path := range definition.Pruned(definition.Fullest(c.stored), c.ours) {
		if strings.HasPrefix(path, "spec.") { // what others report in the status changes no decision
			c.beyond = append(c.beyond, path)
		}
	}
	if len(c.beyond) == 0 {
		c.stored, c.ours = nil, nil
	}
	return nil
}

// beyond returns what a set has that this version lacks: fields and values, or what only such
// fields leave. A definition without the fields may have removed them since.
func (r *reading) beyond(ctx context.Context, leaders *appsv1.StatefulSet) ([]string, error) {
	if found, err := workload.Unmet(r.set, r.scheduler); err != nil || len(found) > 0 {
		return found, err
	}
	if r.definition == nil {
		return nil, nil
	}
	found, err := r.definition.BeyondOf(ctx, client.ObjectKeyFromObject(r.set))
	if err != nil || len(found) > 0 {
		return found, client.IgnoreNotFound(err)
	}
	if leaders == nil || r.set.Spec.Scheduling != nil {
		return nil, nil
	}
	if _, handed := leaders.Spec.Template.Annotations[lwsv1.WorkloadNameAnnotationKey]; handed {
		found = append(found, fmt.Sprintf("annotation %s of statefulset %s", lwsv1.WorkloadNameAnnotationKey, leaders.Name))
	}
	return found, nil
}

// fillBeyond is beyond for a set. A set without a leader StatefulSet may have its leaders under
// a Deployment.
func (r *reading) fillBeyond(ctx context.Context, w *lws.SetSnapshot) (err error) {
	leaders := w.StatefulSet.Own()
	if w.Beyond, err = r.beyond(ctx, leaders); err != nil || leaders != nil || r.definition == nil || workload.HasHashIdentity(r.set) {
		return err
	}
	deployment, err := r.liveMeta(ctx, "apps/v1", "Deployment", client.ObjectKeyFromObject(r.set))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read deployment %q: %w", r.set.Name, err)
	case metav1.IsControlledBy(deployment, r.set):
		w.Beyond = append(w.Beyond, "deployment "+deployment.Name)
	}
	return nil
}
