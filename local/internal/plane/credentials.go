package plane

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"lockstep.dev/lockstep/local/internal/pki"
)

// adminUser is who a user of the cluster is.
const adminUser = "lockstep-local-admin"

// kwokUser is the name that kwok's requests bear, in guards and audit logs.
const kwokUser = "kwok"

// writeCredentials makes every key, certificate and kubeconfig of a cluster.
// Each component has a user of its own, with the rights it has on a stock
// cluster; kwok, which stands for kubelets and a volume provisioner at once,
// may do anything.
func writeCredentials(l Layout, p Ports) error {
	ca, err := pki.NewAuthority("lockstep-local")
	if err != nil {
		return err
	}
	if err := writePair(l, clusterCA, ca.Pair); err != nil {
		return err
	}
	if err := writeCertificates(l, ca); err != nil {
		return err
	}
	administrator, err := ca.Client(adminUser, "system:masters")
	if err != nil {
		return err
	}
	if err := writePair(l, admin, administrator); err != nil {
		return err
	}
	if err := writeKubeconfig(l.Kubeconfig(), adminUser, p, ca.Cert, administrator); err != nil {
		return err
	}
	return writeComponentKubeconfigs(l, p, ca)
}

func writeComponentKubeconfigs(l Layout, p Ports, ca *pki.Authority) error {
	users := []struct {
		path, user string
		groups     []string
	}{
		{l.kubeconfigOf(ControllerManager), "system:kube-controller-manager", nil},
		{l.kubeconfigOf(Scheduler), "system:kube-scheduler", nil},
		{l.kubeconfigOf(Kwok), kwokUser, []string{"system:masters"}},
	}
	for _, u := range users {
		pair, err := ca.Client(u.user, u.groups...)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(u.path, u.user, p, ca.Cert, pair); err != nil {
			return err
		}
	}
	return nil
}

func writeCertificates(l Layout, ca *pki.Authority) error {
	proxyCA, err := pki.NewAuthority("lockstep-local-front-proxy")
	if err != nil {
		return err
	}
	if err := writePair(l, frontProxyCA, proxyCA.Pair); err != nil {
		return err
	}
	makers := map[string]func() (pki.Pair, error){
		frontProxy: func() (pki.Pair, error) { return proxyCA.Client(frontProxyUser) },
		etcdClient: func() (pki.Pair, error) { return ca.Client("kube-apiserver-etcd-client") },
		tokens:     pki.NewKeys,
		serving: func() (pki.Pair, error) {
			return ca.Serving("lockstep-local", Loopback, "localhost", "10.96.0.1",
				"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
		},
	}
	for name, issue := range makers {
		pair, err := issue()
		if err != nil {
			return err
		}
		if err := writePair(l, name, pair); err != nil {
			return err
		}
	}
	return nil
}

func writePair(l Layout, name string, pair pki.Pair) error {
	if err := writeFile(l.cert(name), pair.Cert, 0o644); err != nil {
		return err
	}
	return writeFile(l.key(name), pair.Key, 0o600)
}

// writeKubeconfig embeds the certificates, so that the file can be copied away.
func writeKubeconfig(path, user string, p Ports, ca []byte, pair pki.Pair) error {
	const cluster = "lockstep-local"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{
		Server:                   fmt.Sprintf("https://%s", address(p.APIServer)),
		CertificateAuthorityData: ca,
	}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeFile(path, data, 0o600)
}
