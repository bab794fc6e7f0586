package pvccache

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

var leaderWorkerSets = lwsv1.GroupVersion.WithKind(string(identity.KindLeaderWorkerSet))

// Workloads are informers of all kinds that may want PVCs. They find workloads by the names of
// PVCs. Kinds that are not built in are watched while the API server serves them.
type Workloads struct {
	builtIn []*builtInKind
	others  []*otherKind
	starter *kinds.Starter
	changed []func(Wanting)
	failed  cache.WatchErrorHandlerWithContext
}

// Wanting is a change of what workloads want: PVCs by name, and PVCs whose names are a prefix
// and numbers.
type Wanting struct {
	Namespace string
	Named     []string
	Prefixes  []string
}

// builtInKind is a kind that every API server serves.
type builtInKind struct {
	kind     identity.Kind
	resource string
	informer cache.SharedIndexInformer
}

// otherKind is a kind that may come and go.
type otherKind struct {
	*kinds.Kind
	// described is what the configuration says of the kind, or nil.
	described *described
}

// NewWorkloads returns Workloads that watch once they run: the built-in kinds, LeaderWorkerSets,
// and those given. started returns the size of a set's groups. Failed lists and watches are
// reported to failed.
func NewWorkloads(client kubernetes.Interface, clients kinds.Clients, configured []workloads.Kind, started GroupSize, failed cache.WatchErrorHandlerWithContext) (*Workloads, error) {
	w := &Workloads{failed: failed}
	apps, batch := client.AppsV1().RESTClient(), client.BatchV1().RESTClient()
	for _, k := range []struct {
		kind     identity.Kind
		resource string
		client   cache.Getter
		empty    runtime.Object
	}{
		{identity.KindStatefulSet, "statefulsets", apps, &appsv1.StatefulSet{}},
		{"Deployment", "deployments", apps, &appsv1.Deployment{}},
		{"ReplicaSet", "replicasets", apps, &appsv1.ReplicaSet{}},
		{"DaemonSet", "daemonsets", apps, &appsv1.DaemonSet{}},
		{"Job", "jobs", batch, &batchv1.Job{}},
		{"CronJob", "cronjobs", batch, &batchv1.CronJob{}},
	} {
		lw := cache.NewListWatchFromClient(k.client, k.resource, metav1.NamespaceAll, fields.Everything())
		informer, err := w.informer(cache.ToListWatcherWithWatchListSemantics(lw, client), k.empty, builtIn)
		if err != nil {
			return nil, err
		}
		if err := informer.SetWatchErrorHandlerWithContext(failed); err != nil {
			return nil, err
		}
		w.builtIn = append(w.builtIn, &builtInKind{kind: k.kind, resource: k.resource, informer: informer})
	}
	w.add(leaderWorkerSets, OfLeaderWorkerSet(started), nil)
	for _, kind := range configured {
		d := &described{kind: kind}
		w.add(kind.GroupVersionKind, d.of, d)
	}
	var all []*kinds.Kind
	for _, k := range w.others {
		all = append(all, k.Kind)
	}
	w.starter = kinds.New(clients, all...)
	return w, nil
}

// add adds a kind that may come and go.
func (w *Workloads) add(kind schema.GroupVersionKind, of wants, d *described) {
	w.others = append(w.others, &otherKind{described: d, Kind: &kinds.Kind{
		GroupVersionKind: kind,
		Failed:           w.failed,
		Informer: func(lw cache.ListerWatcher) (cache.SharedIndexInformer, error) {
			d.reset()
			return w.informer(lw, &unstructured.Unstructured{}, of)
		},
		Turned: func(stopped []any) {
			for _, object := range stopped {
				w.report(workloadIn(object), nil)
			}
		},
	}})
}

// informer returns an informer of the workloads of one kind, which reports their changes.
func (w *Workloads) informer(lw cache.ListerWatcher, empty runtime.Object, of wants) (cache.SharedIndexInformer, error) {
	informer := cache.NewSharedIndexInformerWithOptions(lw, empty, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{indexNamed: namedBy, indexSeries: seriesOf},
	})
	if err := informer.SetTransform(workloadOf(of)); err != nil {
		return nil, err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { w.report(nil, workloadIn(is)) },
		UpdateFunc: func(was, is any) { w.report(workloadIn(was), workloadIn(is)) },
		DeleteFunc: func(was any) { w.report(workloadIn(was), nil) },
	})
	return informer, err
}

// workloadIn returns the workload that an event is about, or nil.
func workloadIn(object any) *workload {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	found, _ := object.(*workload)
	return found
}

// Follow calls changed for every change of what is wanted. It must be called before Run.
func (w *Workloads) Follow(changed func(Wanting)) { w.changed = append(w.changed, changed) }

// report reports the PVCs that a workload wants or wanted, if that has changed.
func (w *Workloads) report(was, is *workload) {
	if was != nil && is != nil && sameWant(was, is) {
		return
	}
	var about Wanting
	for _, one := range []*workload{was, is} {
		if one == nil {
			continue
		}
		about.Namespace = one.Namespace
		for claim := range one.want.Named {
			about.Named = append(about.Named, claim)
		}
		for _, series := range one.want.Series {
			about.Prefixes = append(about.Prefixes, series.Prefix)
		}
	}
	if len(about.Named)+len(about.Prefixes) == 0 {
		return
	}
	slices.Sort(about.Named)
	slices.Sort(about.Prefixes)
	about.Named, about.Prefixes = slices.Compact(about.Named), slices.Compact(about.Prefixes)
	for _, changed := range w.changed {
		changed(about)
	}
}

// sameWant reports whether a workload wants the same PVCs as before, and has the same owner.
func sameWant(was, is *workload) bool {
	a, b := was.want, is.want
	a.Workload.ResourceVersion, b.Workload.ResourceVersion = "", ""
	return was.owner == is.owner && reflect.DeepEqual(a, b)
}

// Run watches until ctx ends.
func (w *Workloads) Run(ctx context.Context) error {
	for _, k := range w.builtIn {
		go k.informer.RunWithContext(ctx)
	}
	return w.starter.Run(ctx)
}

// otherKindsWithin bounds the wait for kinds that may come and go. One that cannot be read must
// not keep the operator from adding holds for the others.
const otherKindsWithin = 30 * time.Second

// AwaitSync waits until the built-in kinds have been read once, and for a while for the others.
func (w *Workloads) AwaitSync(ctx context.Context) error {
	for _, k := range w.builtIn {
		if !cache.WaitForCacheSync(ctx.Done(), k.informer.HasSynced) {
			return fmt.Errorf("%s are not synced yet: %w", k.resource, context.Cause(ctx))
		}
	}
	within, cancel := context.WithTimeout(ctx, otherKindsWithin)
	defer cancel()
	for _, k := range w.others {
		cache.WaitForCacheSync(within.Done(), k.IsRead)
	}
	return nil
}

// indexers returns the indexers of all kinds that are served.
func (w *Workloads) indexers() []cache.Indexer {
	all := make([]cache.Indexer, 0, len(w.builtIn)+len(w.others))
	for _, k := range w.builtIn {
		all = append(all, k.informer.GetIndexer())
	}
	for _, k := range w.others {
		if informer := k.Watched(); informer != nil {
			all = append(all, informer.GetIndexer())
		}
	}
	return all
}

// indexerOf returns the indexer of a reference's kind, or nil.
func (w *Workloads) indexerOf(ref identity.Ref) cache.Indexer {
	group := schema.FromAPIVersionAndKind(ref.APIVersion, "").Group
	for _, k := range w.builtIn {
		if k.kind == ref.Kind && (group == appsv1.GroupName || group == batchv1.GroupName) {
			return k.informer.GetIndexer()
		}
	}
	for _, k := range w.others {
		if informer := k.Watched(); informer != nil && k.GroupVersionKind.Kind == string(ref.Kind) && k.Group == group {
			return informer.GetIndexer()
		}
	}
	return nil
}

// wanting returns the workloads that want a PVC, whatever its number.
func (w *Workloads) wanting(namespace, claim string) (found []*workload) {
	for _, indexer := range w.indexers() {
		found = appendWorkloads(found, indexer, indexNamed, namespace+"/"+claim)
		for _, prefix := range workloads.Prefixes(claim) {
			found = appendWorkloads(found, indexer, indexSeries, namespace+"/"+prefix)
		}
	}
	return found
}

func appendWorkloads(found []*workload, indexer cache.Indexer, index, key string) []*workload {
	objects, _ := indexer.ByIndex(index, key) // every indexer has the index
	for _, object := range objects {
		if w := workloadIn(object); w != nil && !slices.Contains(found, w) {
			found = append(found, w)
		}
	}
	return found
}

// named returns the workload that a reference names, or nil. watched reports whether workloads
// of its kind are watched.
func (w *Workloads) named(ref identity.Ref) (found *workload, watched bool) {
	indexer := w.indexerOf(ref)
	if indexer == nil {
		return nil, false
	}
	object, _, _ := indexer.GetByKey(ref.Namespace + "/" + ref.Name) // a thread-safe store returns no error
	if found := workloadIn(object); found != nil && found.UID == ref.UID {
		return found, true
	}
	return nil, true
}
