package pvccache

import (
	"context"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/pvc"
)

var leaderWorkerSets = lwsv1.GroupVersion.WithKind(string(identity.KindLeaderWorkerSet))

// askForKindEvery is how often it is asked whether a kind is served by now.
const askForKindEvery = 10 * time.Second

// foreignKind is a kind that may come and go, with what its workloads want while it
// is there.
type foreignKind struct {
	schema.GroupVersionKind
	desired   *Desired
	discovery discovery.DiscoveryInterface
	client    dynamic.Interface
	of        func(any) (pvc.Want, error)
	// description is what the configuration says of the kind, or nil.
	description *description

	// now is nil until it was found out whether the kind is served.
	now atomic.Pointer[serving]
}

// serving is what is known of a kind: what watches it, or nil while it is not served.
type serving struct {
	watched cache.SharedIndexInformer
}

func newForeignKind(d *Desired, discovery discovery.DiscoveryInterface, client dynamic.Interface, kind schema.GroupVersionKind, of func(any) (pvc.Want, error)) *foreignKind {
	return &foreignKind{GroupVersionKind: kind, desired: d, discovery: discovery, client: client, of: of}
}

func (k *foreignKind) String() string {
	return strings.ToLower(k.Kind) + "." + k.Group
}

// informer is what watches the kind, or nil.
func (k *foreignKind) informer() cache.SharedIndexInformer {
	if now := k.now.Load(); now != nil {
		return now.watched
	}
	return nil
}

// known reports whether the kind is known not to be served, or was read once.
func (k *foreignKind) known() bool {
	now := k.now.Load()
	return now != nil && (now.watched == nil || now.watched.HasSynced())
}

// run watches the kind whenever it is served.
func (k *foreignKind) run(ctx context.Context) {
	for ctx.Err() == nil {
		resource, err := k.served(ctx)
		if err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Failed to read whether a kind of workload is served", "kind", k.String())
		} else {
			k.follow(ctx, resource)
		}
		select {
		case <-ctx.Done():
		case <-time.After(askForKindEvery):
		}
	}
}

// served asks the API server for the resource of the kind, which is without a name when
// it serves none. A version that is not served any more is no reason to let go of what
// its workloads hold: another one of the same kind is read then, by the same paths.
// While it cannot be told, what was known of the kind stays.
func (k *foreignKind) served(ctx context.Context) (schema.GroupVersionResource, error) {
	return kinds.Served(ctx, k.discovery.RESTClient(), k.GroupVersionKind)
}

// follow watches a resource until it is not served any more. What was known of the kind
// stays until it is known what has become of it: it may be served in another version.
func (k *foreignKind) follow(ctx context.Context, resource schema.GroupVersionResource) {
	life, end := context.WithCancel(ctx)
	defer end()
	now := &serving{}
	if resource.Resource != "" {
		informer, err := k.watch(resource, end)
		if err != nil {
			return // asked for again
		}
		now.watched = informer
	}
	before := k.informer()
	k.description.readAs(resource)
	k.now.Store(now)
	if before != nil {
		for _, object := range before.GetIndexer().List() {
			k.desired.tell(kept(object), nil)
		}
	}
	if now.watched != nil {
		now.watched.RunWithContext(life)
	}
}

// watch makes what watches a resource. It calls end when that is not served.
func (k *foreignKind) watch(resource schema.GroupVersionResource, end func()) (cache.SharedIndexInformer, error) {
	informer, err := k.desired.informer(k.listWatch(resource), &unstructured.Unstructured{}, k.of)
	if err != nil {
		return nil, err
	}
	return informer, informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			end()
			return
		}
		k.desired.failed(ctx, r, err)
	})
}

func (k *foreignKind) listWatch(resource schema.GroupVersionResource) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(everywhere(k.client, resource), k.client)
}

// everywhere lists and watches a resource in all namespaces.
func everywhere(client dynamic.Interface, resource schema.GroupVersionResource) *cache.ListWatch {
	all := client.Resource(resource)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, options)
		},
	}
}

// indexerOf keeps the workloads of a reference's kind, or is nil.
func (d *Desired) indexerOf(ref identity.Ref) cache.Indexer {
	group, _, found := strings.Cut(ref.APIVersion, "/")
	if !found {
		group = "" // "v1" is a version of the group without a name
	}
	for _, k := range d.kinds {
		if k.kind == ref.Kind && (group == "apps" || group == "batch") {
			return k.informer.GetIndexer()
		}
	}
	for _, k := range d.foreign {
		if informer := k.informer(); informer != nil && k.Kind == string(ref.Kind) && k.Group == group {
			return informer.GetIndexer()
		}
	}
	return nil
}

// sameWant tells whether a workload wants what it wanted, and is where it was.
func sameWant(was, is *workload) bool {
	a, b := was.want, is.want
	a.Workload.ResourceVersion, b.Workload.ResourceVersion = "", ""
	return was.owner == is.owner && reflect.DeepEqual(a, b)
}
