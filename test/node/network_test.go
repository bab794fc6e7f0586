//go:build linux

package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/test/drill"
)

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

// proxyConfig leaves the kernel's settings of the machine alone.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
hostnameOverride: %[2]s
bindAddress: %[3]s
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
clientConnection: {kubeconfig: %[1]s/proxy.kubeconfig}
mode: iptables
clusterCIDR: 10.201.0.0/24
iptables: {localhostNodePorts: false}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// startProxy starts kube-proxy, which makes Services of pods reachable in the network of the node.
func (n *realNode) startProxy() error {
	return n.stage.start("kube-proxy", n.log("kube-proxy"), n.program, "proxy", "--config", filepath.Join(n.dir, "proxy.yaml"))
}

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
	go forward(n.relay.api, "tcp", net.JoinHostPort("127.0.0.1", n.relay.port))
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
	go forward(pods, "unix", filepath.Join(r.dir, apiSocket))
	return http.Serve(egress, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { drill.Tunnel(w, r, r.URL.Host) }))
}

// forward joins every connection of a listener to an address.
func forward(from net.Listener, network, address string) {
	for {
		near, err := from.Accept()
		if err != nil {
			return
		}
		go func() {
			far, err := net.Dial(network, address)
			if err != nil {
				_ = near.Close()
				return
			}
			drill.Join(near, far)
		}()
	}
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

// corefile answers names of Services and of their pods, from a watch and without a cache. It forwards nothing.
const corefile = `%[3]s:53 {
  bind %[2]s
  errors
  kubernetes %[3]s {
    kubeconfig %[1]s/dns.kubeconfig
  }
}
`

// startDNS starts CoreDNS at the address of the node, which the kubelet writes into pods.
func (n *realNode) startDNS() error {
	return n.stage.start("coredns", n.log("coredns"), n.dns, "-conf", filepath.Join(n.dir, "Corefile"))
}

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
