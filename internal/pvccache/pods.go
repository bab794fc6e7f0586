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
	select {
	case <-p.informer.HasSyncedChecker().Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pods are not synced yet: %w", context.Cause(ctx))
	}
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

// PodUses is what the informer keeps of a pod: its metadata and the PVCs that it names.
// That is a third of the trimmed Pod type. It is never changed.
type PodUses struct {
	// ObjectMeta has no labels, no annotations, and of the owners the controller.
	metav1.ObjectMeta
	// Node is where the pod is bound, or empty.
	Node  string
	Phase corev1.PodPhase
	// volumes are those that are, or may be, PVCs.
	volumes []volume
}

// volume is a volume of a pod that is a PVC.
type volume struct {
	name string
	// claim is the name of the PVC, or empty for a volume source of a newer API.
	claim     string
	ephemeral bool
}

// UsesOf reduces a pod. A volume stays unless it is known not to be a PVC.
func UsesOf(pod *corev1.Pod) *PodUses {
	uses := &PodUses{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: one(pod.Namespace), Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Node: one(pod.Spec.NodeName), Phase: corev1.PodPhase(one(string(pod.Status.Phase))),
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		owner.APIVersion, owner.Kind, owner.Name = one(owner.APIVersion), one(owner.Kind), one(owner.Name)
		owner.BlockOwnerDeletion = nil
		uses.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	for i := range pod.Spec.Volumes {
		if v, ok := volumeOf(pod, &pod.Spec.Volumes[i]); ok {
			uses.volumes = append(uses.volumes, v)
		}
	}
	return uses
}

func volumeOf(pod *corev1.Pod, v *corev1.Volume) (volume, bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return volume{name: one(v.Name), claim: v.PersistentVolumeClaim.ClaimName}, true
	case v.Ephemeral != nil:
		return volume{name: one(v.Name), claim: pod.Name + "-" + v.Name, ephemeral: true}, true
	case v.VolumeSource == corev1.VolumeSource{}:
		return volume{name: one(v.Name)}, true
	}
	return volume{}, false
}

// Claims are the names of the PVCs that the pod uses. An empty one may be any PVC.
func (p *PodUses) Claims() []string {
	var names []string
	for _, v := range p.volumes {
		names = append(names, v.claim)
	}
	return names
}

// IsShutDown reports whether the kubelet is done with the pod, or was overruled.
func (p *PodUses) IsShutDown() bool {
	return p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
}

// Pod is the pod as far as it was kept.
func (p *PodUses) Pod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: corev1.PodSpec{NodeName: p.Node}, Status: corev1.PodStatus{Phase: p.Phase}}
	for _, v := range p.volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v.whole())
	}
	return pod
}

func (v volume) whole() corev1.Volume {
	whole := corev1.Volume{Name: v.name}
	switch {
	case v.ephemeral:
		whole.Ephemeral = &corev1.EphemeralVolumeSource{}
	case v.claim != "":
		whole.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.claim}
	}
	return whole
}

// trimToUses is the informer's transform.
func trimToUses(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return UsesOf(pod), nil
	}
	return object, nil
}
