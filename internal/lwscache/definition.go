package lwscache

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
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

// Definition compares the CustomResourceDefinition of sets in the cluster with that of this version. It is safe for
// concurrent use.
type Definition struct {
	live client.Reader

	mu sync.Mutex
	// read is nil until the definition was read, and after it changed.
	read *comparison
}

// comparison is one reading of the definition in the cluster.
type comparison struct {
	uid        types.UID
	generation int64
	// isNewer says that theirs has fields of spec that ours lacks.
	isNewer      bool
	theirs, ours *definition.Schema
}

// NewDefinition returns a Definition that reads through live, which must not be a cache.
func NewDefinition(live client.Reader) *Definition { return &Definition{live: live} }

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
// default of the definition counts as no value. While this version lacks nothing, no set is read.
func (d *Definition) BeyondOf(ctx context.Context, key types.NamespacedName) (found []string, err error) {
	now, err := d.compare(ctx)
	if err != nil || !now.isNewer {
		return nil, err
	}
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	if err := d.live.Get(ctx, key, set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	for _, f := range definition.Beyond(map[string]any{"spec": set.Object["spec"]}, now.theirs, now.ours) {
		value, err := json.Marshal(f.Value)
		if err != nil {
			return nil, err
		}
		found = append(found, f.Path+"="+string(value))
	}
	return found, nil
}

// compare returns the comparison of the definition in the cluster with ours.
func (d *Definition) compare(ctx context.Context) (now *comparison, err error) {
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
	now = &comparison{}
	if len(list.Items) > 0 {
		now, err = compared(&list.Items[0])
	}
	if err != nil {
		return nil, fmt.Errorf("compare the definition of LeaderWorkerSets: %w", err)
	}
	d.read = now
	return now, nil
}

func compared(inCluster *unstructured.Unstructured) (*comparison, error) {
	text, err := crd.Files.ReadFile("leaderworkerset.x-k8s.io_leaderworkersets.yaml")
	if err != nil {
		return nil, err
	}
	embedded := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, embedded); err != nil {
		return nil, err
	}
	theirs, _, err := definition.SchemaOf(inCluster, "")
	if err != nil {
		return nil, err
	}
	ours, _, err := definition.SchemaOf(embedded, "")
	// what others report in the status changes no decision
	isOfSpec := func(path string) bool { return strings.HasPrefix(path, "spec.") }
	isNewer := slices.ContainsFunc(definition.Pruned(definition.Fullest(theirs), ours), isOfSpec)
	return &comparison{inCluster.GetUID(), inCluster.GetGeneration(), isNewer, theirs, ours}, err
}

// beyond returns what a set has that this version lacks: fields and values, or what its leaders show of a field that
// the API server removed since.
func (r *reading) beyond(ctx context.Context, leaders *appsv1.StatefulSet) ([]string, error) {
	if found, err := workload.Unmet(r.set, r.scheduler); r.definition == nil || err != nil || len(found) > 0 {
		return found, err
	}
	if leaders != nil && r.set.Spec.Scheduling == nil && leaders.Spec.Template.Annotations[lwsv1.WorkloadNameAnnotationKey] != "" {
		return []string{fmt.Sprintf("annotation %s of statefulset %s", lwsv1.WorkloadNameAnnotationKey, leaders.Name)}, nil
	}
	return r.definition.BeyondOf(ctx, client.ObjectKeyFromObject(r.set))
}

// fillBeyond is beyond for a set. A Deployment of a set of Ordinal groups shows that it had Hash groups.
func (r *reading) fillBeyond(ctx context.Context, w *lws.SetSnapshot) (err error) {
	leaders := w.StatefulSet.Own()
	if w.Beyond, err = r.beyond(ctx, leaders); err != nil || leaders != nil || r.definition == nil || workload.HasHashIdentity(r.set) {
		return err
	}
	found, _, err := r.leaderDeployment(ctx)
	if deployment := found.Own(); deployment != nil {
		w.Beyond = append(w.Beyond, "deployment "+deployment.Name)
	}
	return err
}
