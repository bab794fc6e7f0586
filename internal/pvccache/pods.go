package pvccache

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/sieve"
)

// Indexes of pods.
const (
	indexPVC = "pvc" // by the PVCs that a pod names
	indexUID = "uid"
)

// Pods is an informer of every pod in the cluster. It keeps of a pod what concerns PVCs.
type Pods struct{ informer cache.SharedIndexInformer }

// PodsOf lists and watches pods through a PodClient.
func PodsOf(client kubernetes.Interface, pods rest.Interface) cache.ListerWatcher {
	return listWatch(client, pods, "pods")
}

func listWatch(client kubernetes.Interface, api cache.Getter, resource string) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(cache.NewListWatchFromClient(api, resource, metav1.NamespaceAll, fields.Everything()), client)
}

// usesSieve keeps what UsesOf reads.
func usesSieve() *sieve.Sieve {
	return sieve.Only().
		Within(1, sieve.Metadata()).
		Within(2, sieve.Only(1, 10, 38)). // volumes, nodeName, schedulingGates
		Within(3, sieve.Only(1))          // phase
}

// PodClient returns a client that decodes those fields of pods that concern PVCs.
func PodClient(config *rest.Config) (rest.Interface, error) { return sieve.Pods(config, usesSieve()) }

// PodLister lists pods through a PodClient, and reads all else through the Reader.
type PodLister struct {
	client.Reader
	Pods rest.Interface
}

// List implements client.Reader.
func (l PodLister) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return l.Reader.List(ctx, list, options...)
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	return l.Pods.Get().NamespaceIfScoped(o.Namespace, o.Namespace != "").Resource("pods").
		VersionedParams(o.AsListOptions(), scheme.ParameterCodec).Do(ctx).Into(pods)
}

// NewPods returns a Pods that reads from a source once it runs. It reports failed lists and watches to failed.
func NewPods(source cache.ListerWatcher, failed cache.WatchErrorHandlerWithContext) *Pods {
	informer := cache.NewSharedIndexInformerWithOptions(source, &corev1.Pod{}, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{indexPVC: keysOfPVCs, indexUID: keyOfUID},
	})
	if err := errors.Join(informer.SetTransform(trimToUses), informer.SetWatchErrorHandlerWithContext(failed)); err != nil {
		panic(err) // it has not started
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

// Follow calls changed with every change, as the function Follow does.
func (p *Pods) Follow(changed func(before, after *PodUses)) error {
	_, err := p.informer.AddEventHandler(eventHandler(changed))
	return err
}

// Has reports whether a pod of a namespace is there.
func (p *Pods) Has(namespace string, uid types.UID) bool {
	return len(p.by(indexUID, namespace+"/"+string(uid))) > 0
}

// Gated returns the pod of a name if it is under the gate of mode strict, or nil.
func (p *Pods) Gated(key types.NamespacedName) *corev1.Pod {
	object, exists, _ := p.informer.GetStore().GetByKey(key.String()) // a thread-safe store returns no error
	if uses, _ := object.(*PodUses); exists && uses.IsGated() {
		return uses.Pod()
	}
	return nil
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
		pods[i] = objects[i].(*PodUses)
	}
	return pods
}

func keysOfPVCs(object any) (keys []string, err error) {
	pod := object.(*PodUses)
	for _, claim := range pod.Claims() {
		keys = append(keys, pod.Namespace+"/"+claim)
	}
	return keys, nil
}

func keyOfUID(object any) ([]string, error) {
	pod := object.(*PodUses)
	return []string{pod.Namespace + "/" + string(pod.UID)}, nil
}

// PodUses is what the informer keeps of a pod: its metadata and the PVCs that it names.
// That is half of the trimmed Pod type. It is never changed.
type PodUses struct {
	// ObjectMeta has no labels, no annotations, and of the owners the controller.
	metav1.ObjectMeta
	// Node is where the pod is bound, or empty.
	Node  string
	Phase corev1.PodPhase
	// gates are those of a pod under the gate of mode strict.
	gates []corev1.PodSchedulingGate
	// volumes are those that are, or may be, PVCs.
	volumes []corev1.Volume
}

// UsesOf reduces a pod. A volume stays unless it is known not to be a PVC.
func UsesOf(pod *corev1.Pod) *PodUses {
	uses := &PodUses{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Node: pod.Spec.NodeName, Phase: pod.Status.Phase,
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		owner.BlockOwnerDeletion = nil
		uses.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if pvc.Gated(pod) {
		uses.gates = slices.Clone(pod.Spec.SchedulingGates)
	}
	for _, v := range pod.Spec.Volumes {
		kept := corev1.Volume{Name: v.Name}
		switch {
		case v.PersistentVolumeClaim != nil:
			kept.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.PersistentVolumeClaim.ClaimName}
		case v.Ephemeral != nil:
			kept.Ephemeral = &corev1.EphemeralVolumeSource{}
		case v.VolumeSource != corev1.VolumeSource{}:
			continue
		}
		uses.volumes = append(uses.volumes, kept)
	}
	return uses
}

// Claims are the names of the PVCs that the pod uses. An empty one may be any PVC: its volume is of a newer API.
func (p *PodUses) Claims() (names []string) {
	for i := range p.volumes {
		names = append(names, pvc.ClaimOf(p, &p.volumes[i]))
	}
	return names
}

// IsGated reports whether the pod is under the gate of mode strict.
func (p *PodUses) IsGated() bool { return len(p.gates) > 0 }

// Pod is the pod as far as it was kept. It must not be changed.
func (p *PodUses) Pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: p.ObjectMeta, Spec: corev1.PodSpec{NodeName: p.Node, SchedulingGates: p.gates, Volumes: p.volumes},
		Status: corev1.PodStatus{Phase: p.Phase},
	}
}

// trimToUses is the informer's transform.
func trimToUses(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return UsesOf(pod), nil
	}
	return object, nil
}
