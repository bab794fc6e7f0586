// Package volumes is the part of a kubelet that decides which volumes a pod gets:
// the kubelet's own populator of the desired state, unmodified, fed with the pods
// that are bound to one node. What it admits, a kubelet mounts; here it is told,
// one line of JSON each, and nothing is mounted. It knows nothing of containers.
package volumes

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/kubernetes/pkg/kubelet/config"
	volumecache "k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/populator"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csimigration"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/util"
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
	desired := tell(volumecache.NewDesiredStateOfWorld(plugins, util.NewSELinuxLabelTranslator()), out)
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
