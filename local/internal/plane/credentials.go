package plane

import (
	"crypto"
	"crypto/x509"
	"net"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/kubeconfig"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

var (
	serves = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} // members of etcd do both
	calls  = serves[1:]
)

// authority signs certificates of a cluster.
type authority struct {
	pki  string // directory
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority writes a certificate authority. It is valid since an hour ago: a clock may be set back a little.
func newAuthority(l Layout, file, name string) (*authority, error) {
	config := certutil.Config{CommonName: name, NotBefore: time.Now().Add(-time.Hour)}
	cert, key, err := pkiutil.NewCertificateAuthority(&pkiutil.CertConfig{Config: config, EncryptionAlgorithm: kubeadm.EncryptionAlgorithmECDSAP256})
	if err != nil {
		return nil, err
	}
	return &authority{l.inner("pki"), cert, key}, pkiutil.WriteCertAndKey(l.inner("pki"), file, cert, key)
}

// issue writes a certificate, and returns a kubeconfig of its user. Kubernetes reads the common name as the user and the
// organisations as its groups.
func (a *authority) issue(file, server string, config certutil.Config) (*clientcmdapi.Config, error) {
	of := pkiutil.CertConfig{Config: config, EncryptionAlgorithm: kubeadm.EncryptionAlgorithmECDSAP256}
	cert, key, err := pkiutil.NewCertAndKey(a.cert, a.key, &of)
	if err != nil {
		return nil, err
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	user := kubeconfig.CreateWithCerts(server, "lockstep-local", config.CommonName, pkiutil.EncodeCertPEM(a.cert), encoded, pkiutil.EncodeCertPEM(cert))
	return user, pkiutil.WriteCertAndKey(a.pki, file, cert, key)
}

// writeCredentials writes every key, certificate and kubeconfig of a cluster. Each component has
// a user of its own, with the rights that it has on a stock cluster. kwok stands for kubelets and
// a volume provisioner at once, and may do anything: guards and audit logs know its user.
func writeCredentials(l Layout, p Ports) error {
	ca, err := newAuthority(l, clusterCA, "lockstep-local")
	if err != nil {
		return err
	}
	proxyCA, err := newAuthority(l, frontProxyCA, "lockstep-local-front-proxy")
	if err != nil {
		return err
	}
	names := certutil.AltNames{
		IPs:      []net.IP{net.ParseIP(Loopback), net.ParseIP("10.96.0.1")},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
	}
	anything := []string{"system:masters"}
	for _, issue := range []struct {
		by         *authority
		file       string
		config     certutil.Config
		kubeconfig string // path, or empty
	}{
		{proxyCA, frontProxy, certutil.Config{CommonName: frontProxy, Usages: calls}, ""},
		{ca, etcdClient, certutil.Config{CommonName: "kube-apiserver-etcd-client", Usages: calls}, ""},
		{ca, serving, certutil.Config{CommonName: "lockstep-local", AltNames: names, Usages: serves}, ""},
		{ca, admin, certutil.Config{CommonName: "lockstep-local-admin", Organization: anything, Usages: calls}, l.Kubeconfig()},
		{ca, string(ControllerManager), certutil.Config{CommonName: "system:kube-controller-manager", Usages: calls}, l.kubeconfigOf(ControllerManager)},
		{ca, string(Scheduler), certutil.Config{CommonName: "system:kube-scheduler", Usages: calls}, l.kubeconfigOf(Scheduler)},
		{ca, string(Kwok), certutil.Config{CommonName: string(Kwok), Organization: anything, Usages: calls}, l.kubeconfigOf(Kwok)},
	} {
		user, err := issue.by.issue(issue.file, "https://"+address(p.APIServer), issue.config)
		if err == nil && issue.kubeconfig != "" {
			err = clientcmd.WriteToFile(*user, issue.kubeconfig)
		}
		if err != nil {
			return err
		}
	}
	tokenKey, err := pkiutil.NewPrivateKey(kubeadm.EncryptionAlgorithmECDSAP256)
	if err != nil {
		return err
	}
	return pkiutil.WriteKey(l.inner("pki"), tokens, tokenKey)
}
