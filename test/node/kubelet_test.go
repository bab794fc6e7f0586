//go:build linux

package node

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/drill"
)

// nodeName is the one node of the drills. The API server reaches its kubelet by this name.
const nodeName = nodeAddress

// realNode is a kubelet and a containerd.
type realNode struct {
	stage   *stage
	program string // the kubelet
	dns     string // CoreDNS
	dir     string
	group   string
	ports   []int // of the kubelet, and of its health checks
	relay   *relay
}

// newNode writes the files of a node.
func newNode(dir string) (*realNode, error) {
	n := &realNode{dir: dir, group: fmt.Sprintf("lockstep-node-%d", os.Getpid())}
	var err error
	if n.program, err = drill.Program("lockstep-kubelet"); err != nil {
		return nil, err
	}
	if n.dns, err = drill.Program("coredns"); err != nil {
		return nil, err
	}
	if n.ports, err = drill.FreePorts(2); err != nil {
		return nil, err
	}
	for _, sub := range []string{"cni", "disks", "images", "pods", "plugins"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	return n, errors.Join(
		n.fill("containerd.toml", dir, pauseImage, networkPlugins),
		n.write("cni/10-pods.conflist", podNetwork, dir),
		n.fill("kubelet.yaml", dir, n.ports[0], n.ports[1], n.group, nodeAddress, clusterDomain),
		n.fill("proxy.yaml", dir, nodeName, nodeAddress),
		n.fill("Corefile", dir, nodeAddress, clusterDomain),
	)
}

func (n *realNode) write(name, form string, values ...any) error {
	return os.WriteFile(filepath.Join(n.dir, name), fmt.Appendf(nil, form, values...), 0o644)
}

// fill writes a file of testdata with its values.
func (n *realNode) fill(name string, values ...any) error {
	form, err := os.ReadFile(filepath.Join("testdata", name))
	return errors.Join(err, n.write(name, string(form), values...))
}

// start starts containerd with the images of the drills, and the kubelet.
func (n *realNode) start() (err error) {
	if err := n.buildImages(); err != nil {
		return err
	}
	if n.stage, err = openStage(n.dir, n.group); err != nil {
		return err
	}
	if err := n.stage.start("containerd", n.log("containerd"), "containerd", "--config", filepath.Join(n.dir, "containerd.toml")); err != nil {
		return err
	}
	if err := drill.Poll(context.Background(), func() error { _, err := n.ctr("version"); return err }); err != nil {
		return fmt.Errorf("containerd is not ready: %w\n%s", err, drill.LastLines(n.log("containerd"), 20))
	}
	if out, err := n.ctr("images", "import", filepath.Join(n.dir, "images.tar")); err != nil {
		return fmt.Errorf("import images: %w\n%s", err, out)
	}
	if err := n.startRelay(); err != nil {
		return err
	}
	return errors.Join(n.startKubelet(), // kube-proxy makes Services of pods reachable, and the kubelet writes the address of CoreDNS into pods
		n.stage.start("kube-proxy", n.log("kube-proxy"), n.program, "proxy", "--config", filepath.Join(n.dir, "proxy.yaml")),
		n.stage.start("coredns", n.log("coredns"), n.dns, "-conf", filepath.Join(n.dir, "Corefile")))
}

// startKubelet starts the kubelet, also after a kill: it then finds its pods.
func (n *realNode) startKubelet() error {
	return n.stage.start("kubelet", n.log("kubelet"), n.program,
		"--config", filepath.Join(n.dir, "kubelet.yaml"),
		"--kubeconfig", filepath.Join(n.dir, "kubeconfig"),
		"--hostname-override", nodeName,
		"--node-ip", nodeAddress,
		"--root-dir", filepath.Join(n.dir, "kubelet"),
		"--cert-dir", filepath.Join(n.dir, "certificates"),
		"--v", "2")
}

// killKubelet kills the kubelet. The containers continue.
func (n *realNode) killKubelet() error { return n.stage.kill("kubelet") }

// ctr runs a command of the client of containerd.
func (n *realNode) ctr(args ...string) ([]byte, error) {
	return exec.Command("ctr", append([]string{"--address", filepath.Join(n.dir, "c.sock"), "--namespace", "k8s.io"}, args...)...).CombinedOutput()
}

func (n *realNode) log(name string) string { return filepath.Join(n.dir, name+".log") }

// disk is the directory behind a volume.
func (n *realNode) disk(volume string) string { return filepath.Join(n.dir, "disks", volume) }

// testbed is a control plane with an operator and one real node.
type testbed struct {
	*drill.Bed
	node  *realNode
	disks int
}

// raise starts everything and waits until the node accepts pods.
func (b *testbed) raise(dir string, reaper *drill.Reaper) (err error) {
	plane := drill.Plane{Nodes: 1, QPS: 200, Egress: filepath.Join(dir, "node", egressSocket)}
	if b.Bed, err = drill.NewBed(dir, reaper, plane); err != nil {
		return err
	}
	if b.node, err = newNode(filepath.Join(dir, "node")); err != nil {
		return err
	}
	b.Logs = []string{b.node.log("kubelet")}
	if err := b.Raise("node-test", drill.IsWrite); err != nil {
		return err
	}
	return b.join()
}

// leave stops the node. The reaper stops the rest.
func (b *testbed) leave() error {
	if b.node == nil || b.node.stage == nil {
		return nil
	}
	return errors.Join(b.node.stage.close(), b.node.relay.close())
}

// join joins the node, with the permissions of a node. It makes the simulated node of the control
// plane unschedulable.
func (b *testbed) join() error {
	ctx, cancel := context.WithTimeout(context.Background(), drill.Patience)
	defer cancel()
	late := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: diskStorage}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &late}
	if err := b.identify(); err != nil {
		return err
	}
	if err := errors.Join(b.closeSimulated(ctx), b.Client.Create(ctx, class), b.announce(ctx), b.allowDNS(ctx)); err != nil {
		return err
	}
	began := time.Now()
	if err := b.node.start(); err != nil {
		return err
	}
	if err := b.awaitNode(ctx); err != nil {
		return err
	}
	fmt.Printf("real node: ready %s after it was started\n", time.Since(began).Round(100*time.Millisecond))
	return nil
}

func (b *testbed) closeSimulated(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	err := b.Client.List(ctx, nodes)
	for i := range nodes.Items {
		err = errors.Join(err, b.Client.Patch(ctx, &nodes.Items[i], drill.Merge(`{"spec":{"unschedulable":true}}`)))
	}
	return err
}

// awaitNode waits until the node is ready and has no taint.
func (b *testbed) awaitNode(ctx context.Context) error {
	err := drill.Poll(ctx, func() error {
		node := &corev1.Node{}
		err := b.Client.Get(ctx, client.ObjectKey{Name: nodeName}, node)
		if err == nil && (!nodeReady(node) || len(node.Spec.Taints) > 0) {
			err = fmt.Errorf("conditions %+v, taints %+v", node.Status.Conditions, node.Spec.Taints)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the node is not ready: %w\n%s", err, drill.LastLines(b.node.log("kubelet"), 30))
	}
	return nil
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// identify writes the kubeconfigs of the kubelet, kube-proxy and CoreDNS: an administrator that impersonates them.
func (b *testbed) identify() error {
	admin := rest.CopyConfig(b.Rest)
	if err := rest.LoadTLSFiles(admin); err != nil {
		return err
	}
	server, err := url.Parse(admin.Host)
	if err != nil {
		return err
	}
	b.node.relay = &relay{dir: b.node.dir, port: server.Port()}
	err = os.WriteFile(filepath.Join(b.node.dir, "ca.crt"), admin.CAData, 0o644)
	for file, as := range map[string]rest.ImpersonationConfig{
		"kubeconfig":       {UserName: "system:node:" + nodeName, Groups: []string{"system:nodes"}},
		"proxy.kubeconfig": {UserName: "system:kube-proxy"},
		"dns.kubeconfig":   {UserName: dnsUser},
	} {
		admin.Impersonate = as
		err = errors.Join(err, delay.WriteKubeconfig(admin, filepath.Join(b.node.dir, file)))
	}
	return err
}

// diskStorage is the class of the disks of the node. The test creates them, and the scheduler binds
// them.
const diskStorage = "disks"

// addDisks creates n volumes on the node: half of them local, and half host paths. They keep their
// data.
func (b *testbed) addDisks(ctx context.Context, n int) error {
	for range n {
		b.disks++
		name := b.lastDisk()
		if err := os.MkdirAll(b.node.disk(name), 0o777); err != nil {
			return err
		}
		if err := b.Client.Create(ctx, b.newDisk(name, b.disks%2 == 0)); err != nil {
			return err
		}
	}
	return nil
}

// lastDisk is the name of the newest volume.
func (b *testbed) lastDisk() string { return fmt.Sprintf("disk-%03d", b.disks) }

func (b *testbed) newDisk(name string, local bool) *corev1.PersistentVolume {
	source := corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: b.node.disk(name)}}
	if local {
		source = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: b.node.disk(name)}}
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: diskStorage, PersistentVolumeSource: source,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName}}},
			}}}},
		},
	}
}

// The images of the drills. No registry has them: the test imports them into containerd.
const (
	containerImage = "lockstep.local/container:drill"
	pauseImage     = "lockstep.local/pause:drill" // holds the namespaces of a pod: the same program without flags
)

// imageConfig and imageManifest are of the format of docker save.
const (
	imageConfig = `{"architecture":%q,"os":"linux","config":{"Entrypoint":["/container"],"Labels":{"name":%q}},
"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`
	imageManifest = `[{"Config":"container.json","RepoTags":[%q],"Layers":["layer.tar"]},
{"Config":"pause.json","RepoTags":[%q],"Layers":["layer.tar"]}]`
)

// buildImages builds the program that runs in pods, and writes an archive of its images.
func (n *realNode) buildImages() error {
	root, images := filepath.Join(n.dir, "root"), filepath.Join(n.dir, "images")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", filepath.Join(root, "container"), "./container")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the image's program: %w\n%s", err, out)
	}
	layer := filepath.Join(images, "layer.tar")
	if err := archive(layer, root); err != nil {
		return err
	}
	text, err := os.ReadFile(layer)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	return errors.Join(
		n.write("images/container.json", imageConfig, runtime.GOARCH, containerImage, sum),
		n.write("images/pause.json", imageConfig, runtime.GOARCH, pauseImage, sum),
		n.write("images/manifest.json", imageManifest, containerImage, pauseImage),
		archive(filepath.Join(n.dir, "images.tar"), images),
	)
}

// archive writes an archive of a directory.
func archive(path, dir string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := tar.NewWriter(file)
	return errors.Join(w.AddFS(os.DirFS(dir)), w.Close(), file.Close())
}
