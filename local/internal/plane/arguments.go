package plane

import (
	"embed"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"

	cliflag "k8s.io/component-base/cli/flag"

	"lockstep.dev/lockstep/local/stages"
)

// Names of the files that the components are pointed at, in Layout.pki and
// Layout.config. credentials.go and configuration.go write them.
const (
	clusterCA    = "ca"                 // signs servers and users
	frontProxyCA = "front-proxy-ca"     // signs the API server when it calls extension API servers
	frontProxy   = "front-proxy-client" // also the user of the API server at extension API servers
	etcdClient   = "etcd-client"
	admin        = "admin" // also in the users' kubeconfig
	serving      = "serving"
	tokens       = "service-account"

	auditPolicy   = "audit-policy.yaml"
	schedulerFile = "scheduler.yaml"
	kwokFile      = "kwok.yaml"
	egressFile    = "egress.yaml"
	kubeletFile   = "kubelet.yaml"
	logFile       = "container.log"
)

// Arguments are those of a component: a pure function of what is remembered, so that a restart repeats the start.
func Arguments(c Component, s Settings, p Ports, l Layout) []string {
	build := map[Component]func(Settings, Ports, Layout) []string{
		Etcd:              etcdArguments,
		APIServer:         apiServerArguments,
		ControllerManager: controllerManagerArguments,
		Scheduler:         schedulerArguments,
		Kwok:              kwokArguments,
	}
	return append([]string{string(c)}, build[c](s, p, l)...)
}

// etcdArguments give up durability across a crash of the machine (no fsync): a local cluster is thrown away, and its
// disk is often slow. A killed etcd still finds everything it acknowledged, in the kernel's page cache.
func etcdArguments(_ Settings, p Ports, l Layout) []string {
	client, peer := "https://"+address(p.EtcdClient), "https://"+address(p.EtcdPeer)
	return []string{
		"--name=local",
		"--data-dir=" + l.etcdData(),
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn", "--log-format=console",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=local=" + peer,
		"--client-cert-auth", "--trusted-ca-file=" + l.cert(clusterCA),
		"--cert-file=" + l.cert(serving), "--key-file=" + l.key(serving),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + l.cert(clusterCA),
		"--peer-cert-file=" + l.cert(serving), "--peer-key-file=" + l.key(serving),
	}
}

// apiServerArguments name a request-header CA of its own: the API server refuses one that also signs users unless the
// names are restricted, and without any the other components log an error every ten seconds. No endpoint of the service
// "kubernetes" is kept, because a loopback address is not allowed to be one.
func apiServerArguments(s Settings, p Ports, l Layout) []string {
	args := []string{
		"--bind-address=" + Loopback, "--advertise-address=" + Loopback,
		fmt.Sprintf("--secure-port=%d", p.APIServer),
		"--endpoint-reconciler-type=none",
		"--etcd-servers=https://" + address(p.EtcdClient), "--etcd-cafile=" + l.cert(clusterCA),
		"--etcd-certfile=" + l.cert(etcdClient), "--etcd-keyfile=" + l.key(etcdClient),
		"--tls-cert-file=" + l.cert(serving), "--tls-private-key-file=" + l.key(serving),
		"--client-ca-file=" + l.cert(clusterCA),
		"--kubelet-client-certificate=" + l.cert(admin), "--kubelet-client-key=" + l.key(admin),
		"--kubelet-preferred-address-types=ExternalIP,Hostname,InternalIP", // the first is of simulated nodes
		"--authorization-mode=Node,RBAC",
		"--allow-privileged",
		"--profiling=false",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + l.key(tokens), "--service-account-signing-key-file=" + l.key(tokens),
		"--requestheader-client-ca-file=" + l.cert(frontProxyCA), "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + l.cert(frontProxy), "--proxy-client-key-file=" + l.key(frontProxy),
	}
	if s.Audit { // each line is written before its request is answered, into one file: a reader misses nothing
		args = append(args, "--audit-policy-file="+l.config(auditPolicy), "--audit-log-path="+l.AuditLog(),
			"--audit-log-mode=blocking", "--audit-log-maxsize=1000000") // MB; 0 would mean a default of 100
	}
	if len(s.DisableAdmission) > 0 {
		args = append(args, "--disable-admission-plugins="+strings.Join(s.DisableAdmission, ","))
	}
	if s.Egress != "" {
		args = append(args, "--egress-selector-config-file="+l.config(egressFile))
	}
	if served := s.runtimeConfig(); len(served) > 0 {
		args = append(args, "--runtime-config="+strings.Join(served, ","))
	}
	return withFeatureGates(args, s)
}

// gangGate is the feature gate under which the scheduler reads PodGroups, of an API that is off by default: without
// that API the scheduler does not start.
const (
	gangGate = "GenericWorkload"
	gangAPI  = "scheduling.k8s.io/v1beta1"
)

// runtimeConfig is what the settings say of APIs, and the one that a feature gate needs unless they name it.
func (s Settings) runtimeConfig() []string {
	isNamed := func(of string) bool { return strings.HasPrefix(of, gangAPI) }
	if !s.FeatureGates[gangGate] || slices.ContainsFunc(s.RuntimeConfig, isNamed) {
		return s.RuntimeConfig
	}
	return append(slices.Clone(s.RuntimeConfig), gangAPI+"=true")
}

func controllerManagerArguments(s Settings, p Ports, l Layout) []string {
	burst := (3*s.ControllerQPS + 1) / 2 // one and a half times the rate, rounded up
	kubeconfig := l.kubeconfigOf(ControllerManager)
	return withFeatureGates([]string{
		"--bind-address=" + Loopback, fmt.Sprintf("--secure-port=%d", p.ControllerManager),
		"--tls-cert-file=" + l.cert(serving), "--tls-private-key-file=" + l.key(serving),
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + l.key(tokens), "--root-ca-file=" + l.cert(clusterCA),
		"--cluster-signing-cert-file=" + l.cert(clusterCA), "--cluster-signing-key-file=" + l.key(clusterCA),
		"--leader-elect=false", "--profiling=false",
		fmt.Sprintf("--kube-api-qps=%d", s.ControllerQPS), fmt.Sprintf("--kube-api-burst=%d", burst),
		"--controllers=" + strings.Join(s.Controllers, ","),
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--kubeconfig=" + kubeconfig,
	}, s)
}

func schedulerArguments(s Settings, p Ports, l Layout) []string {
	kubeconfig := l.kubeconfigOf(Scheduler)
	return withFeatureGates([]string{
		"--config=" + l.config(schedulerFile),
		"--bind-address=" + Loopback, fmt.Sprintf("--secure-port=%d", p.Scheduler),
		"--tls-cert-file=" + l.cert(serving), "--tls-private-key-file=" + l.key(serving),
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
	}, s)
}

// kwokArguments select nodes by annotation, so that a real node can join. The lease must be asked for: with the
// heartbeat left to node statuses alone, every node turns NotReady after 50 s.
func kwokArguments(_ Settings, p Ports, l Layout) []string {
	return []string{
		"--kubeconfig=" + l.kubeconfigOf(Kwok),
		"--config=" + l.config(kwokFile),
		"--manage-nodes-with-annotation-selector=" + simulatedKey + "=" + simulatedValue,
		"--node-lease-duration-seconds=40",
		"--cidr=10.128.0.0/10",
		"--server-address=" + address(p.Kwok),
		"--tls-cert-file=" + l.cert(serving), "--tls-private-key-file=" + l.key(serving),
	}
}

func withFeatureGates(args []string, s Settings) []string {
	if len(s.FeatureGates) == 0 {
		return args
	}
	return append(args, "--feature-gates="+cliflag.NewMapStringBool(&s.FeatureGates).String())
}

func (l Layout) cert(name string) string { return l.pki(name + ".crt") }

func (l Layout) key(name string) string { return l.pki(name + ".key") }

func (l Layout) kubeconfigOf(c Component) string { return l.config(string(c) + ".kubeconfig") }

// Loopback is the only address that anything here listens on.
const Loopback = "127.0.0.1"

// Ports are the listeners of one cluster.
type Ports struct {
	APIServer         int `json:"kubeAPIServer"`
	EtcdClient        int `json:"etcdClient"`
	EtcdPeer          int `json:"etcdPeer"`
	ControllerManager int `json:"kubeControllerManager"`
	Scheduler         int `json:"kubeScheduler"`
	Kwok              int `json:"kwok"`
}

// portCount is how many consecutive ports a cluster takes.
const portCount = 6

// Ports are drawn from here: below the range from which the kernel takes the ports of outgoing connections, so that a
// component that is killed finds its port free when it comes back.
const lowestPort, highestPort = 20000, 30000

// portsFrom lays a cluster out on consecutive ports.
func portsFrom(base int) Ports {
	return Ports{base, base + 1, base + 2, base + 3, base + 4, base + 5}
}

// of is the port that a component is spoken to on.
func (p Ports) of(c Component) int {
	return map[Component]int{
		Etcd: p.EtcdClient, APIServer: p.APIServer, ControllerManager: p.ControllerManager, Scheduler: p.Scheduler, Kwok: p.Kwok,
	}[c]
}

// planPorts returns the first free block after a random one: clusters that start together try different blocks.
func planPorts(free func(port int) bool) (Ports, error) {
	const span = highestPort - lowestPort - portCount
	offset := rand.IntN(span)
	for step := 0; step < span; step += portCount {
		if base := lowestPort + (offset+step)%span; blockFree(base, free) {
			return portsFrom(base), nil
		}
	}
	return Ports{}, fmt.Errorf("no %d free ports in a row between %d and %d", portCount, lowestPort, highestPort)
}

func blockFree(base int, free func(int) bool) bool {
	for port := base; port < base+portCount; port++ {
		if !free(port) {
			return false
		}
	}
	return true
}

// portFree listens on a loopback port for a moment: only that finds listeners of every kind.
func portFree(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func address(port int) string {
	return net.JoinHostPort(Loopback, strconv.Itoa(port))
}

// manifests are the configurations of the components, and what a cluster is seeded with.
//
//go:embed manifests
var manifests embed.FS

// manifest returns one of them. It panics on another name.
func manifest(name string) string {
	text, err := manifests.ReadFile("manifests/" + name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// writeConfiguration writes the configuration files that depend on settings.
func writeConfiguration(l Layout, s Settings) error {
	kwokStages, err := stages.Config(s.Stages)
	if err != nil {
		return err
	}
	files := map[string]string{
		logFile:       manifest(logFile),
		auditPolicy:   manifest(auditPolicy),
		schedulerFile: schedulerConfiguration(l, s),
		kwokFile:      fmt.Sprintf(manifest(kwokFile), s.Kubelet) + manifest(kubeletFile) + kwokStages,
		egressFile:    fmt.Sprintf(manifest(egressFile), s.Egress),
	}
	for name, text := range files {
		if err := writeFile(l.config(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// schedulerConfiguration keeps the scheduler as fast as the controller manager: a raised limit runs pods sooner. By default it
// has 50 queries a second, with twice that as burst.
func schedulerConfiguration(l Layout, s Settings) string {
	qps := max(50, s.ControllerQPS)
	return fmt.Sprintf(manifest(schedulerFile), l.kubeconfigOf(Scheduler), qps, 2*qps)
}
