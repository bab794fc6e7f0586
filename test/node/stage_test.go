//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/test/drill"
)

// A stage is a process, a mount and a network namespace, in which only the kubelet, containerd and
// all containers run. When the first process of a process namespace ends, the kernel kills every
// other one in it; when the last process ends, mounts and networks go. So the test need not find and
// end processes one by one, however a run ends. The first process ends at the end of its input, which
// its keeper shares with the test.
//
//	test ──stdin──► keeper (outside: removes the control groups in the end)
//	     │          └── first process (pid 1 inside)
//	     └── nsenter ── containerd, kubelet, shims, containers
type stage struct {
	keeper *exec.Cmd
	input  io.Closer
	// first is the PID of the first process, outside.
	first   string
	running map[string]*exec.Cmd
}

// keep is the script of the keeper. It makes the control group in which a kubelet puts pods: in version 1 there is one
// for each controller. It removes them from the bottom up. The kernel may report one busy for a moment after its
// processes have ended.
const keep = `
groups=$(while read -r _ root kind _; do case $kind in cgroup*) echo "$root/$1" ;; esac; done </proc/self/mounts)
mkdir $groups
unshare --mount --net --pid --fork --kill-child sh -ec "$3" sh "$2" || echo "the first process has failed" >&2
remove() {
  tries=0
  until find "$1" -depth -type d -exec rmdir {} +; do
    test $((tries += 1)) -lt 100
    sleep 0.02
  done
}
for group in $groups; do remove "$group"; done
`

// furnish is the script of the first process. It makes the mounts and the network that the programs need, and waits for
// the end of its input.
//
// The kubelet, containerd, its shims and the network plugins write files under fixed names. On the stage these
// directories are empty file systems. The kernel settings are those that a kubelet requires and would set for the whole
// machine. The stage shows these values, so that the kubelet changes none.
const furnish = `
read -r pid _ </proc/self/stat
mount --make-rshared /
mount -t proc stage /proc
for over in /run /var/log /var/lib /etc/cni; do
  test ! -e $over || mount -t tmpfs -o mode=0755 stage $over
done
while read -r name value; do
  mkdir -p "$1/sysctl/${name%/*}"
  echo $value >"$1/sysctl/$name"
  mount --bind "$1/sysctl/$name" /proc/sys/$name
done <<end
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
end
` + makeNetwork + `
echo $pid
cat >/dev/null
exit 0
`

// openStage starts a stage. Outside of dir, its writes stay in its own mounts. group is the name
// of its control group.
func openStage(dir, group string) (*stage, error) {
	log, err := os.Create(filepath.Join(dir, "stage.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	keeper := exec.Command("sh", "-ec", keep, "sh", group, dir, furnish)
	keeper.Stderr = log
	keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not reach it
	in, err := keeper.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := keeper.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := keeper.Start(); err != nil {
		return nil, err
	}
	s := &stage{keeper: keeper, input: in, running: map[string]*exec.Cmd{}}
	if _, err := fmt.Fscanln(out, &s.first); err != nil {
		return s, fmt.Errorf("no stage: %w\n%s", err, drill.LastLines(log.Name(), 10))
	}
	return s, nil
}

// close ends every process on the stage and waits until all are gone.
func (s *stage) close() error {
	_ = s.input.Close()
	return s.keeper.Wait()
}

// start starts a program on the stage.
func (s *stage) start(name, log string, args ...string) error {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.Command("nsenter", append([]string{"--target", s.first, "--mount", "--net", "--pid", "--"}, args...)...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.running[name] = cmd
	return cmd.Start()
}

// kill kills a program, the child of its nsenter, and returns when both are gone.
func (s *stage) kill(name string) error {
	cmd := s.running[name]
	child, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", cmd.Process.Pid))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(child)))
	if err != nil {
		return fmt.Errorf("%s does not run: %w", name, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	_ = cmd.Wait() // it was killed
	return nil
}

// nodeAddress is that of the node in its own network, and the gateway of its pods.
const nodeAddress = "10.201.0.1"

// makeNetwork makes the bridge of the pods before the first pod does. The default route lets a
// connection to a Service begin: kube-proxy's rules then give it the address of a pod. A bridge without a hardware
// address takes that of a pod: pods lose it, and with it DNS, for half a minute after that pod goes.
const makeNetwork = `ip link set lo up
ip link add pods0 address 02:00:0a:c9:00:01 type bridge
ip addr add ` + nodeAddress + `/24 dev pods0
ip link set pods0 up
ip route add default dev pods0
`

// podNetwork joins the pods by the bridge. The network has no route to the machine's own.
const podNetwork = `{"cniVersion":"0.4.0","name":"pods","plugins":[{"type":"bridge","bridge":"pods0","isDefaultGateway":true,
"ipam":{"type":"host-local","dataDir":"%s/addresses","ranges":[[{"subnet":"10.201.0.0/24","gateway":"` + nodeAddress + `"}]]}}]}`

// Sockets between the network of the node and that of the machine, in the directory of the node.
const (
	apiSocket    = "api.sock"
	egressSocket = "egress.sock"
)

// relayEnv makes the test binary act as the relay's end on the node.
const relayEnv = "LOCKSTEP_NODE_RELAY"

// A relay joins the network of the node and the API server, and nothing else. The sockets are files,
// which both networks share.
//
//	kubelet, kube-proxy, pods ──► port of the API server ──► api.sock ──► API server
//	Services, pods, kubelet ◄── egress.sock (HTTP CONNECT) ◄── API server
type relay struct {
	dir, port string
	api       net.Listener
}

// startRelay starts both ends.
func (n *realNode) startRelay() (err error) {
	if n.relay.api, err = net.Listen("unix", filepath.Join(n.dir, apiSocket)); err != nil {
		return err
	}
	go drill.Forward(n.relay.api, func() (net.Conn, error) { return net.Dial("tcp", net.JoinHostPort("127.0.0.1", n.relay.port)) })
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return n.stage.start("relay", n.log("relay"), "env", relayEnv+"=1", self, n.dir, n.relay.port)
}

// close ends the end on the machine.
func (r *relay) close() error {
	if r == nil || r.api == nil {
		return nil
	}
	return r.api.Close()
}

// run is the program of the end on the node.
func (r *relay) run() error {
	pods, err := net.Listen("tcp", net.JoinHostPort("0.0.0.0", r.port))
	if err != nil {
		return err
	}
	egress, err := net.Listen("unix", filepath.Join(r.dir, egressSocket))
	if err != nil {
		return err
	}
	go drill.Forward(pods, func() (net.Conn, error) { return net.Dial("unix", filepath.Join(r.dir, apiSocket)) })
	return http.Serve(egress, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { drill.Tunnel(w, r, r.URL.Host) }))
}

// announce makes the node's end of the relay the endpoint of the Service kubernetes: pods then reach the
// API server as on any cluster.
func (b *testbed) announce(ctx context.Context) error {
	port, err := strconv.ParseInt(b.node.relay.port, 10, 32)
	if err != nil {
		return err
	}
	return b.Client.Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: metav1.NamespaceDefault, Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{nodeAddress}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(port)), Protocol: new(corev1.ProtocolTCP)}},
	})
}

const (
	clusterDomain = "cluster.local"
	// dnsUser is the account of CoreDNS. It has its own rights, not those of the node.
	dnsUser = "system:serviceaccount:kube-system:coredns"
)

// allowDNS lets CoreDNS read what it answers.
func (b *testbed) allowDNS(ctx context.Context) error {
	named, read := metav1.ObjectMeta{Name: "coredns"}, []string{"list", "watch"}
	return errors.Join(
		b.Client.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{corev1.GroupName}, Resources: []string{"namespaces", "services"}, Verbs: read},
			{APIGroups: []string{discoveryv1.GroupName}, Resources: []string{"endpointslices"}, Verbs: read},
		}}),
		b.Client.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: named,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: dnsUser}},
		}),
	)
}
