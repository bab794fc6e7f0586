package plane

import (
	"crypto"
	"crypto/x509"
	"net"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/kubeconfig"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

// adminUser is the name of a user of the cluster, and kwokUser that of kwok in guards and audit logs.
const (
	adminUser = "lockstep-local-admin"
	kwokUser  = "kwok"
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
	config := pkiutil.CertConfig{
		Config:              certutil.Config{CommonName: name, NotBefore: time.Now().Add(-time.Hour)},
		EncryptionAlgorithm: kubeadm.EncryptionAlgorithmECDSAP256,
	}
	cert, key, err := pkiutil.NewCertificateAuthority(&config)
	if err != nil {
		return nil, err
	}
	return &authority{l.inner("pki"), cert, key}, pkiutil.WriteCertAndKey(l.inner("pki"), file, cert, key)
}

// issue writes a certificate. Kubernetes reads the common name as the user and the organisations as its groups.
func (a *authority) issue(file string, config certutil.Config) (cert *x509.Certificate, key crypto.Signer, err error) {
	cert, key, err = pkiutil.NewCertAndKey(a.cert, a.key, &pkiutil.CertConfig{Config: config, EncryptionAlgorithm: kubeadm.EncryptionAlgorithmECDSAP256})
	if err != nil {
		return nil, nil, err
	}
	return cert, key, pkiutil.WriteCertAndKey(a.pki, file, cert, key)
}

// writeCredentials writes every key, certificate and kubeconfig of a cluster. Each component has
// a user of its own, with the rights that it has on a stock cluster. kwok stands for kubelets and
// a volume provisioner at once, and may do anything.
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
	for file, issue := range map[string]struct {
		by     *authority
		config certutil.Config
	}{
		frontProxy: {proxyCA, certutil.Config{CommonName: frontProxyUser, Usages: calls}},
		etcdClient: {ca, certutil.Config{CommonName: "kube-apiserver-etcd-client", Usages: calls}},
		serving:    {ca, certutil.Config{CommonName: "lockstep-local", AltNames: names, Usages: serves}},
	} {
		if _, _, err := issue.by.issue(file, issue.config); err != nil {
			return err
		}
	}
	tokenKey, err := pkiutil.NewPrivateKey(kubeadm.EncryptionAlgorithmECDSAP256)
	if err != nil {
		return err
	}
	if err := pkiutil.WriteKey(l.inner("pki"), tokens, tokenKey); err != nil {
		return err
	}
	return writeKubeconfigs(l, p, ca)
}

func writeKubeconfigs(l Layout, p Ports, ca *authority) error {
	for _, u := range []struct {
		path, file, user string
		groups           []string
	}{
		{l.Kubeconfig(), admin, adminUser, []string{"system:masters"}},
		{l.kubeconfigOf(ControllerManager), string(ControllerManager), "system:kube-controller-manager", nil},
		{l.kubeconfigOf(Scheduler), string(Scheduler), "system:kube-scheduler", nil},
		{l.kubeconfigOf(Kwok), string(Kwok), kwokUser, []string{"system:masters"}},
	} {
		cert, key, err := ca.issue(u.file, certutil.Config{CommonName: u.user, Organization: u.groups, Usages: calls})
		if err != nil {
			return err
		}
		encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
		if err != nil {
			return err
		}
		config := kubeconfig.CreateWithCerts("https://"+address(p.APIServer), "lockstep-local", u.user, pkiutil.EncodeCertPEM(ca.cert), encoded, pkiutil.EncodeCertPEM(cert))
		if err := kubeconfig.WriteToDisk(u.path, config); err != nil {
			return err
		}
	}
	return nil
}
