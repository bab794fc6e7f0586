// Package volumes is the part of a kubelet that decides which volumes a pod gets: the kubelet's own populator of the
// desired state, unmodified, fed with the pods that are bound to one node. What it admits, a kubelet mounts; here it is
// told, one line of JSON each, and nothing is mounted. It knows nothing of containers.
package volumes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	volumecache "k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/populator"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csimigration"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/util"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// loop is how long a kubelet's populator sleeps between two rounds.
const loop = 100 * time.Millisecond

// Run reads the command line, and runs until ctx ends.
func Run(ctx context.Context, args []string, out io.Writer) error {
	flags := pflag.NewFlagSet("kubelet-volumes", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "path of the kubeconfig")
	node := flags.String("node", "", "name of the node to decide for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kubeconfig == "" || *node == "" {
		return fmt.Errorf("give --kubeconfig and --node")
	}
	rest, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	rest.UserAgent = "kubelet-volumes/" + *node
	rest.QPS, rest.Burst = 50, 100 // a kubelet's own
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	return populate(ctx, client, *node, out)
}

func populate(ctx context.Context, client kubernetes.Interface, node string, out io.Writer) error {
	plugins := &volume.VolumePluginMgr{}
	if err := plugins.InitPlugins(hostpath.ProbeVolumePlugins(volume.VolumeConfig{}), nil, host{client: client}); err != nil {
		return err
	}
	pods, synced := follow(ctx, client, node)
	desired := &told{
		DesiredStateOfWorld: volumecache.NewDesiredStateOfWorld(plugins, util.NewSELinuxLabelTranslator()),
		out:                 json.NewEncoder(out), last: map[types.UID]line{},
	}
	translator := csitranslation.New()
	populator.NewDesiredStateOfWorldPopulator(
		client, loop, pods, pods, desired,
		volumecache.NewActualStateOfWorld(types.NodeName(node), plugins),
		csimigration.NewPluginManager(translator), translator, plugins,
	).Run(ctx, config.NewSourcesReady(func(sets.Set[string]) bool { return synced() }))
	return nil
}

// follow watches the pods of a node, as a kubelet does.
func follow(ctx context.Context, client kubernetes.Interface, node string) (nodePods, cache.InformerSynced) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}))
	informer := factory.Core().V1().Pods().Informer()
	factory.StartWithContext(ctx)
	return nodePods{informer.GetStore()}, informer.HasSynced
}

// line is one thing that the populator decided.
type line struct {
	// Pod is its UID, and Claim that of a claim that was admitted.
	Pod   types.UID `json:"pod"`
	Claim types.UID `json:"claim,omitempty"`
	// Refused says why something was not.
	Refused string `json:"refused,omitempty"`
}

// told is the desired state, which tells what it is given.
type told struct {
	volumecache.DesiredStateOfWorld
	mu   sync.Mutex
	out  *json.Encoder
	last map[types.UID]line // of each pod
}

func (t *told) AddPodToVolume(logger klog.Logger, name volumetypes.UniquePodName, pod *corev1.Pod, spec *volume.Spec,
	outer, gid string, contexts []*corev1.SELinuxOptions,
) (corev1.UniqueVolumeName, error) {
	volumeName, err := t.DesiredStateOfWorld.AddPodToVolume(logger, name, pod, spec, outer, gid, contexts)
	if err == nil && spec.PersistentVolume != nil {
		t.say(line{Pod: pod.UID, Claim: spec.PersistentVolume.Spec.ClaimRef.UID})
	}
	return volumeName, err
}

func (t *told) AddErrorToPod(name volumetypes.UniquePodName, err string) {
	t.DesiredStateOfWorld.AddErrorToPod(name, err)
	t.say(line{Pod: types.UID(name), Refused: err})
}

// say writes a line that differs from the last of its pod: a refusal comes ten times a second. A reader that is gone ends
// the program by its signal.
func (t *told) say(l line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[l.Pod] != l {
		t.last[l.Pod] = l
		_ = t.out.Encode(l)
	}
}

// nodePods are the pods of the node. It stands for the kubelet's pod manager and
// its pod workers: a pod runs as long as its object is there.
type nodePods struct{ store cache.Store }

func (p nodePods) GetPods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range p.store.List() {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

func (p nodePods) GetPodByUID(uid types.UID) (*corev1.Pod, bool) {
	for _, pod := range p.GetPods() {
		if pod.UID == uid {
			return pod, true
		}
	}
	return nil, false
}

// ShouldPodContainersBeTerminating keeps new volumes from a terminating pod.
func (p nodePods) ShouldPodContainersBeTerminating(uid types.UID) bool {
	pod, there := p.GetPodByUID(uid)
	return !there || pod.DeletionTimestamp != nil
}

// ShouldPodRuntimeBeRemoved takes the volumes of a pod away.
func (p nodePods) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	_, there := p.GetPodByUID(uid)
	return !there
}

// host is what the volume plugins stand on, of which none is used: nothing is mounted.
type host struct {
	volume.VolumeHost
	client kubernetes.Interface
}

func (h host) GetKubeClient() kubernetes.Interface { return h.client }
