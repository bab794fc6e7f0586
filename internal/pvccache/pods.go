package pvccache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"lockstep.dev/lockstep/internal/pvc"
)

// Indexes of pods.
const (
	indexPVC = "pvc" // by the PVCs that a pod names
	indexUID = "uid"
)

// Pods is an informer of every pod in the cluster. It keeps of a pod what concerns PVCs.
type Pods struct{ informer cache.SharedIndexInformer }

// PodsOfClaims is a client for pods that reads protobuf.
func PodsOfClaims(config *rest.Config) (corev1client.PodsGetter, error) {
	c := rest.CopyConfig(config)
	c.ContentType = runtime.ContentTypeProtobuf
	return corev1client.NewForConfig(c)
}

// NewPods returns a Pods that reads through a client once it runs. It reports failed lists
// and watches to failed.
func NewPods(pods corev1client.PodInterface, failed cache.WatchErrorHandlerWithContext) *Pods {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, o)
		},
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(source, pods), &corev1.Pod{}, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, indexPVC: keysOfPVCs, indexUID: keyOfUID},
	})
	if err := informer.SetTransform(trimToUses); err != nil {
		panic(err) // it has not started
	}
	if err := informer.SetWatchErrorHandlerWithContext(failed); err != nil {
		panic(err)
	}
	return &Pods{informer}
}

// Store holds the pods. Tests fill it.
func (p *Pods) Store() cache.Store { return p.informer.GetStore() }

// Run keeps it filled until ctx ends.
func (p *Pods) Run(ctx context.Context) { p.informer.RunWithContext(ctx) }

// AwaitSync waits until it has been filled once.
func (p *Pods) AwaitSync(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return fmt.Errorf("pods are not synced yet: %w", context.Cause(ctx))
	}
	return nil
}

// Follow calls changed with every change: before is nil for a new pod, after for a
// deleted one. Two pods of one name are two calls.
func (p *Pods) Follow(changed func(before, after *PodUses)) error {
	_, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(is any) { changed(nil, usesIn(is)) },
		UpdateFunc: func(was, is any) {
			before, after := usesIn(was), usesIn(is)
			if before.UID == after.UID {
				changed(before, after)
				return
			}
			changed(before, nil)
			changed(nil, after)
		},
		DeleteFunc: func(was any) { changed(usesIn(was), nil) },
	})
	return err
}

func usesIn(object any) *PodUses {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	return object.(*PodUses) // the informer holds nothing else
}

// IsLarge reports whether a list of the pods of a namespace costs more than waiting
// for the informer.
func (p *Pods) IsLarge(namespace string) bool {
	keys, _ := p.informer.GetIndexer().IndexKeys(cache.NamespaceIndex, namespace) // the index is there
	return len(keys) > cheapList
}

// Has reports whether a pod of a namespace is there.
func (p *Pods) Has(namespace string, uid types.UID) bool {
	return len(p.by(indexUID, namespace+"/"+string(uid))) > 0
}

// Index is the pods of a namespace that may use one of the PVCs.
func (p *Pods) Index(namespace string, claims ...string) *pvc.Index {
	index := pvc.NewIndex()
	p.using(namespace, claims, nil, index.See)
	return index
}

// using calls see with the pods that may use one of the PVCs, and those with the UIDs.
func (p *Pods) using(namespace string, claims []string, uids []types.UID, see func(*corev1.Pod)) {
	found := map[types.UID]*PodUses{}
	for _, claim := range append([]string{""}, claims...) {
		for _, pod := range p.by(indexPVC, namespace+"/"+claim) {
			found[pod.UID] = pod
		}
	}
	for _, uid := range uids {
		for _, pod := range p.by(indexUID, namespace+"/"+string(uid)) {
			found[pod.UID] = pod
		}
	}
	for _, pod := range found {
		see(pod.Pod())
	}
}

func (p *Pods) by(index, key string) []*PodUses {
	objects, _ := p.informer.GetIndexer().ByIndex(index, key) // the index is there
	pods := make([]*PodUses, len(objects))
	for i := range objects {
		pods[i] = usesIn(objects[i])
	}
	return pods
}

func keysOfPVCs(object any) (keys []string, err error) {
	pod := usesIn(object)
	for _, claim := range pod.Claims() {
		keys = append(keys, pod.Namespace+"/"+claim)
	}
	return keys, nil
}

func keyOfUID(object any) ([]string, error) {
	pod := usesIn(object)
	return []string{pod.Namespace + "/" + string(pod.UID)}, nil
}
