package pvccache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
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
	builtIn map[schema.GroupKind]cache.SharedIndexInformer
	others  []*kinds.Kind
	failed  cache.WatchErrorHandlerWithContext

	changed atomic.Pointer[Concerned]
}

// workload is what the cache keeps of an object that may want PVCs: which ones, and its controller.
// An object that wants none is kept as a link of chains.
type workload struct {
	metav1.ObjectMeta
	want workloads.Want
}

// workloadOf returns a transform that reduces objects to workloads. A workload stays as it is.
func workloadOf(wants func(object any) workloads.Want) func(any) (any, error) {
	return func(object any) (any, error) {
		source, ok := object.(metav1.Object)
		if _, kept := object.(*workload); kept || !ok {
			return object, nil
		}
		return &workload{want: wants(object), ObjectMeta: metav1.ObjectMeta{
			Namespace: source.GetNamespace(), Name: source.GetName(), UID: source.GetUID(), ResourceVersion: source.GetResourceVersion(),
		}}, nil
	}
}

// builtInKinds are served by every API server.
var builtInKinds = []schema.GroupVersionKind{
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	appsv1.SchemeGroupVersion.WithKind("Deployment"),
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
	batchv1.SchemeGroupVersion.WithKind("Job"),
	batchv1.SchemeGroupVersion.WithKind("CronJob"),
}

// NewWorkloads returns Workloads that watch once they and the starter run: the built-in kinds, LeaderWorkerSets, and
// those given. started returns the size of a set's groups. Failed lists and watches are reported to failed.
func NewWorkloads(kube kubernetes.Interface, starter *kinds.Starter, configured []workloads.Kind, started workloads.GroupSize, failed cache.WatchErrorHandlerWithContext) (*Workloads, error) {
	w := &Workloads{failed: failed, builtIn: map[schema.GroupKind]cache.SharedIndexInformer{}}
	apis := map[string]cache.Getter{appsv1.GroupName: kube.AppsV1().RESTClient(), batchv1.GroupName: kube.BatchV1().RESTClient()}
	for _, k := range builtInKinds {
		empty, err := scheme.Scheme.New(k)
		if err != nil {
			return nil, err
		}
		informer := cache.NewSharedIndexInformer(listWatch(kube, apis[k.Group], resourceOf(k)), empty, 0, cache.Indexers{})
		if err := errors.Join(w.setup(informer, workloadOf(workloads.BuiltIn)), informer.SetWatchErrorHandlerWithContext(failed)); err != nil {
			return nil, err
		}
		w.builtIn[k.GroupKind()] = informer
	}
	starter.Add(w.add(leaderWorkerSets, workloadOf(started.OfLeaderWorkerSet)))
	for _, kind := range configured {
		starter.Add(w.add(kind.GroupVersionKind, workloadOf(kind.Of)))
	}
	return w, nil
}

func resourceOf(kind schema.GroupVersionKind) string {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource.Resource
}

// add adds a kind that may come and go.
func (w *Workloads) add(kind schema.GroupVersionKind, reduce cache.TransformFunc) *kinds.Kind {
	k := &kinds.Kind{
		GroupVersionKind: kind,
		Failed:           w.failed,
		Setup:            func(informer cache.SharedIndexInformer) error { return w.setup(informer, reduce) },
		Turned: func(stopped []any) {
			for _, object := range stopped {
				w.report(object.(*workload), nil)
			}
		},
	}
	w.others = append(w.others, k)
	return k
}

// indexKeys finds workloads by the names of the PVCs that they want, and by those without numbers.
const indexKeys = "keys"

// setup makes an informer find workloads by the PVCs that they want, and report their changes.
func (w *Workloads) setup(informer cache.SharedIndexInformer, reduce cache.TransformFunc) error {
	_, err := informer.AddEventHandler(eventHandler(w.report))
	return errors.Join(err, informer.AddIndexers(cache.Indexers{indexKeys: keysOf}), informer.SetTransform(reduce))
}

func keysOf(object any) (keys []string, err error) {
	w := object.(*workload)
	for _, key := range w.want.Keys() {
		keys = append(keys, w.Namespace+"/"+key)
	}
	return keys, nil
}

// Follow calls changed for every later change of what is wanted, with names of PVCs, and with names
// without their numbers.
func (w *Workloads) Follow(changed Concerned) { w.changed.Store(&changed) }

// report reports the PVCs that a workload wants or wanted, if that has changed.
func (w *Workloads) report(was, is *workload) {
	changed, keys := w.changed.Load(), map[types.NamespacedName]bool{}
	if changed == nil || was != nil && is != nil && sameWant(was, is) {
		return
	}
	for _, one := range []*workload{was, is} {
		if one == nil {
			continue
		}
		for _, key := range one.want.Keys() {
			keys[types.NamespacedName{Namespace: one.Namespace, Name: key}] = true
		}
	}
	for key := range keys {
		(*changed)(key)
	}
}

// sameWant reports whether a workload wants the same PVCs as before, and has the same controller.
func sameWant(was, is *workload) bool {
	a, b := was.want, is.want
	a.Workload.ResourceVersion, b.Workload.ResourceVersion = "", ""
	return reflect.DeepEqual(a, b)
}

// Run watches the built-in kinds until ctx ends.
func (w *Workloads) Run(ctx context.Context) error {
	for _, informer := range w.builtIn {
		go informer.RunWithContext(ctx)
	}
	return nil
}

// otherKindsWithin bounds the wait for kinds that may come and go. One that cannot be read must
// not keep the operator from adding holds for the others.
const otherKindsWithin = 30 * time.Second

// AwaitSync waits until the built-in kinds have been read once, and for a while for the others.
func (w *Workloads) AwaitSync(ctx context.Context) error {
	for k, informer := range w.builtIn {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("%s are not synced yet: %w", k, context.Cause(ctx))
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
func (w *Workloads) indexers() map[schema.GroupKind]cache.Indexer {
	all := map[schema.GroupKind]cache.Indexer{}
	for k, informer := range w.builtIn {
		all[k] = informer.GetIndexer()
	}
	for _, k := range w.others {
		if informer := k.Watched(); informer != nil {
			all[k.GroupKind()] = informer.GetIndexer()
		}
	}
	return all
}

// wanting returns the workloads that want a PVC, whatever its number, and some of a similar name.
func (w *Workloads) wanting(namespace, claim string) (found []*workload) {
	for _, indexer := range w.indexers() {
		for _, key := range append(workloads.Prefixes(claim), claim) {
			objects, _ := indexer.ByIndex(indexKeys, namespace+"/"+key) // every indexer has the index
			for _, object := range objects {
				if w := object.(*workload); !slices.Contains(found, w) {
					found = append(found, w)
				}
			}
		}
	}
	return found
}

// named returns the workload that a reference names, or nil. watched reports whether workloads of its kind are watched.
func (w *Workloads) named(ref identity.Ref) (found *workload, watched bool) {
	indexer := w.indexers()[schema.FromAPIVersionAndKind(ref.APIVersion, string(ref.Kind)).GroupKind()]
	if indexer == nil {
		return nil, false
	}
	object, _, _ := indexer.GetByKey(ref.Namespace + "/" + ref.Name) // a thread-safe store returns no error
	if found, _ := object.(*workload); found != nil && found.UID == ref.UID {
		return found, true
	}
	return nil, true
}
