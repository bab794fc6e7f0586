//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"lockstep.dev/lockstep/test/drill"
)

// nodeName is the one node of the drills.
const nodeName = "real-000"

// realNode is a kubelet and a containerd.
type realNode struct {
	stage   *stage
	program string // the kubelet
	dir     string
	group   string
	ports   []int // the kubelet's, and that of its health
}

// containerdConfig has containerd keep to dir, and to loopback where it listens at all. A
// machine whose own start ran with a raised oom_score_adj may not lower it.
const containerdConfig = `version = 2
root = "%[1]s/containerd/root"
state = "%[1]s/containerd/state"
[grpc]
  address = "%[1]s/c.sock"
[ttrpc]
  address = "%[1]s/t.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = %[2]q
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[3]q
    conf_dir = "%[1]s/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`

// network joins the pods by a bridge in containerd's own network, from which nothing
// leads out.
const network = `{"cniVersion":"0.4.0","name":"pods","plugins":[{"type":"bridge","bridge":"pods0","isGateway":false,
"ipam":{"type":"host-local","dataDir":"%s/addresses","ranges":[[{"subnet":"10.201.0.0/24"}]]}}]}`

// kubeletConfig is a kubelet's defaults but for where it lives, that it may do with
// version 1 of control groups, and that it evicts nothing because a disk is rather full.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: %[2]d
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
healthzPort: %[3]d
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: %[1]s/ca.crt}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://%[1]s/c.sock
podLogsDir: %[1]s/pods
volumePluginDir: %[1]s/plugins
cgroupDriver: cgroupfs
cgroupRoot: /%[4]s
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
protectKernelDefaults: true
makeIPTablesUtilChains: false
oomScoreAdj: 0
evictionHard: {memory.available: 1Mi, nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 5s
`

// newNode makes a node ready to be started. Its certificate comes from the cluster.
func newNode(dir string) (*realNode, error) {
	n := &realNode{dir: dir, group: fmt.Sprintf("lockstep-node-%d", os.Getpid())}
	var err error
	if n.program, err = drill.Program("lockstep-kubelet"); err != nil {
		return nil, err
	}
	if n.ports, err = drill.FreePorts(2); err != nil {
		return nil, err
	}
	for _, sub := range []string{"cni", "disks", "pods", "plugins"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	return n, errors.Join(
		n.write("containerd.toml", containerdConfig, dir, pauseImage, networkPlugins),
		n.write("cni/10-pods.conflist", network, dir),
		n.write("kubelet.yaml", kubeletConfig, dir, n.ports[0], n.ports[1], n.group),
	)
}

func (n *realNode) write(name, form string, values ...any) error {
	return os.WriteFile(filepath.Join(n.dir, name), fmt.Appendf(nil, form, values...), 0o644)
}

// start starts containerd with the images of the drills, and the kubelet.
func (n *realNode) start() (err error) {
	images, err := buildImages(n.dir)
	if err != nil {
		return err
	}
	if n.stage, err = openStage(n.dir, n.group); err != nil {
		return err
	}
	const withLoopback = `ip link set lo up && exec containerd --config "$1"`
	if err := n.stage.ask(order{Do: "start", Name: "containerd", Log: n.log("containerd"), Apart: true,
		Args: []string{"sh", "-c", withLoopback, "sh", filepath.Join(n.dir, "containerd.toml")}}); err != nil {
		return fmt.Errorf("%w\n%s", err, drill.LastLines(n.log("stage"), 10))
	}
	if err := n.awaitContainerd(); err != nil {
		return err
	}
	if out, err := n.ctr("images", "import", images); err != nil {
		return fmt.Errorf("import images: %w\n%s", err, out)
	}
	return n.startKubelet()
}

func (n *realNode) awaitContainerd() error {
	deadline := time.Now().Add(drill.Patience)
	for {
		out, err := n.ctr("version")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("containerd does not get ready: %w\n%s\n%s", err, out, drill.LastLines(n.log("containerd"), 20))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// startKubelet starts the kubelet, anew if it was killed: it finds its pods again.
func (n *realNode) startKubelet() error {
	return n.stage.ask(order{Do: "start", Name: "kubelet", Log: n.log("kubelet"), Args: []string{n.program,
		"--config", filepath.Join(n.dir, "kubelet.yaml"),
		"--kubeconfig", filepath.Join(n.dir, "kubeconfig"),
		"--hostname-override", nodeName,
		"--root-dir", filepath.Join(n.dir, "kubelet"),
		"--cert-dir", filepath.Join(n.dir, "certificates"),
		"--v", "2"}})
}

// killKubelet ends the kubelet without warning. The containers run on.
func (n *realNode) killKubelet() error { return n.stage.ask(order{Do: "kill", Name: "kubelet"}) }

// killContainer ends the first process of a container, as running out of memory would.
func (n *realNode) killContainer(id string) error {
	_, id, _ = strings.Cut(id, "://")
	if out, err := n.ctr("tasks", "kill", "--signal", "SIGKILL", id); err != nil {
		return fmt.Errorf("kill container %s: %w\n%s", id, err, out)
	}
	return nil
}

// ctr speaks to containerd.
func (n *realNode) ctr(args ...string) ([]byte, error) {
	return exec.Command("ctr", append([]string{"--address", filepath.Join(n.dir, "c.sock"), "--namespace", "k8s.io"}, args...)...).CombinedOutput()
}

func (n *realNode) log(name string) string { return filepath.Join(n.dir, name+".log") }

// disk is the directory behind a volume.
func (n *realNode) disk(volume string) string { return filepath.Join(n.dir, "disks", volume) }
