package pvccache

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// Desired keeps in memory what all workloads of a cluster want of claims, found by
// the names of claims. Kinds that are not built in are watched while they are served.
type Desired struct {
	kinds   []*wantedKind
	foreign []*foreignKind
	changed []func(Wanting)
	// failed is told of failed lists and watches.
	failed cache.WatchErrorHandlerWithContext
}

// Wanting is what changed: the claims that a workload names or named, and those whose
// names begin so and end in numbers.
type Wanting struct {
	Namespace string
	Named     []string
	Prefixes  []string
}

// wantedKind is one kind that is always served.
type wantedKind struct {
	kind     identity.Kind
	resource string
	informer cache.SharedIndexInformer
}

// NewDesired returns a Desired that reads through the clients once it runs. The
// kinds are those beside what is built in; a LeaderWorkerSet is known, and started tells the
// size of its groups.
func NewDesired(client kubernetes.Interface, foreign dynamic.Interface, kinds []pvc.Kind, started GroupSize, failed cache.WatchErrorHandlerWithContext) (*Desired, error) {
	d := &Desired{failed: failed}
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
		informer, err := d.informer(cache.ToListWatcherWithWatchListSemantics(lw, client), k.empty, builtIn)
		if err != nil {
			return nil, err
		}
		d.kinds = append(d.kinds, &wantedKind{kind: k.kind, resource: k.resource, informer: informer})
	}
	d.foreign = append(d.foreign, newForeignKind(d, client.Discovery(), foreign, leaderWorkerSets, OfLeaderWorkerSet(started)))
	for _, kind := range kinds {
		described := describe(kind)
		k := newForeignKind(d, client.Discovery(), foreign, kind.GroupVersionKind, described.of)
		k.description = described
		d.foreign = append(d.foreign, k)
	}
	return d, nil
}

// informer keeps the workloads of one kind, and tells what their events change.
func (d *Desired) informer(lw cache.ListerWatcher, empty runtime.Object, of func(any) (pvc.Want, error)) (cache.SharedIndexInformer, error) {
	informer := cache.NewSharedIndexInformerWithOptions(lw, empty, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{indexNamed: namedBy, indexSeries: seriesOf},
	})
	if err := informer.SetTransform(workloadOf(of)); err != nil {
		return nil, err
	}
	if err := informer.SetWatchErrorHandlerWithContext(d.failed); err != nil {
		return nil, err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { d.tell(nil, kept(is)) },
		UpdateFunc: func(was, is any) { d.tell(kept(was), kept(is)) },
		DeleteFunc: func(was any) { d.tell(kept(was), nil) },
	})
	return informer, err
}

func kept(object any) *workload {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	w, _ := object.(*workload)
	return w
}

// Follow calls changed for every change of what is wanted. It must be called before
// Run.
func (d *Desired) Follow(changed func(Wanting)) { d.changed = append(d.changed, changed) }

// tell tells of the claims that a workload wants or wanted, if that has changed.
func (d *Desired) tell(was, is *workload) {
	if was != nil && is != nil && sameWant(was, is) {
		return
	}
	var about Wanting
	for _, w := range []*workload{was, is} {
		if w == nil {
			continue
		}
		about.Namespace = w.Namespace
		for claim := range w.want.Named {
			about.Named = append(about.Named, claim)
		}
		for _, series := range w.want.Series {
			about.Prefixes = append(about.Prefixes, series.Prefix)
		}
	}
	if len(about.Named)+len(about.Prefixes) == 0 {
		return
	}
	slices.Sort(about.Named)
	slices.Sort(about.Prefixes)
	about.Named, about.Prefixes = slices.Compact(about.Named), slices.Compact(about.Prefixes)
	for _, tell := range d.changed {
		tell(about)
	}
}

// Run watches until ctx ends.
func (d *Desired) Run(ctx context.Context) error {
	for _, k := range d.kinds {
		go k.informer.RunWithContext(ctx)
	}
	for _, k := range d.foreign {
		go k.run(ctx)
	}
	<-ctx.Done()
	return nil
}

// foreignSyncWithin bounds the wait for kinds that may come and go. One that cannot be read
// must not keep the holds of others from being added.
const foreignSyncWithin = 30 * time.Second

// AwaitSync waits until the kinds that are always served have been read once, and for a
// while for the others: a holder that is not in a cache yet would be written off by name.
func (d *Desired) AwaitSync(ctx context.Context) error {
	for _, k := range d.kinds {
		if !cache.WaitForCacheSync(ctx.Done(), k.informer.HasSynced) {
			return fmt.Errorf("%s are not read yet: %w", k.resource, context.Cause(ctx))
		}
	}
	within, cancel := context.WithTimeout(ctx, foreignSyncWithin)
	defer cancel()
	for _, k := range d.foreign {
		cache.WaitForCacheSync(within.Done(), k.known)
	}
	return nil
}

// indexers are those of all kinds that are there.
func (d *Desired) indexers() []cache.Indexer {
	all := make([]cache.Indexer, 0, len(d.kinds)+len(d.foreign))
	for _, k := range d.kinds {
		all = append(all, k.informer.GetIndexer())
	}
	for _, k := range d.foreign {
		if informer := k.informer(); informer != nil {
			all = append(all, informer.GetIndexer())
		}
	}
	return all
}

// of are the workloads that want a claim, in range or not.
func (d *Desired) of(namespace, claim string) []*workload {
	var found []*workload
	for _, indexer := range d.indexers() {
		found = appendKept(found, indexer, indexNamed, namespace+"/"+claim)
		for _, prefix := range pvc.Prefixes(claim) {
			found = appendKept(found, indexer, indexSeries, namespace+"/"+prefix)
		}
	}
	return found
}

func appendKept(found []*workload, indexer cache.Indexer, index, key string) []*workload {
	objects, err := indexer.ByIndex(index, key)
	if err != nil {
		return found // every indexer has the index
	}
	for _, object := range objects {
		if w := kept(object); w != nil && !slices.Contains(found, w) {
			found = append(found, w)
		}
	}
	return found
}

// named is the very workload that a reference names, or nil. watched tells whether
// workloads of its kind are kept at all.
func (d *Desired) named(ref identity.Ref) (w *workload, watched bool) {
	indexer := d.indexerOf(ref)
	if indexer == nil {
		return nil, false
	}
	object, exists, err := indexer.GetByKey(ref.Namespace + "/" + ref.Name)
	if err != nil || !exists {
		return nil, true
	}
	if w := kept(object); w != nil && w.UID == ref.UID {
		return w, true
	}
	return nil, true
}
