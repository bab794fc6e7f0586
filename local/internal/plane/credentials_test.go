package plane

import (
	"crypto/x509"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
)

func TestCredentialsOfACluster(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	if err := l.create(); err != nil {
		t.Fatal(err)
	}
	if err := writeCredentials(l, portsFrom(21000)); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil || config.Host != "https://127.0.0.1:21000" {
		t.Fatalf("%+v, %v", config, err)
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		t.Errorf("key and certificate of the administrator: %v", err)
	}
	roots, err := certutil.NewPool(l.cert(clusterCA))
	if err != nil {
		t.Fatal(err)
	}
	for file, c := range map[string]struct {
		user, group, host string
		trusted           bool
	}{
		admin:      {adminUser, "system:masters", "", true},
		serving:    {"lockstep-local", "", "kubernetes.default", true},
		etcdClient: {"kube-apiserver-etcd-client", "", "", true},
		frontProxy: {frontProxyUser, "", "", false}, // its CA signs no users
	} {
		certs, err := certutil.CertsFromFile(l.cert(file))
		if err != nil {
			t.Fatal(err)
		}
		subject := certs[0].Subject
		if subject.CommonName != c.user || c.group != "" && !slices.Contains(subject.Organization, c.group) {
			t.Errorf("%s: %v", file, subject)
		}
		usage := x509.ExtKeyUsageClientAuth
		if c.host != "" {
			usage = x509.ExtKeyUsageServerAuth
		}
		_, err = certs[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: c.host, KeyUsages: []x509.ExtKeyUsage{usage}})
		if (err == nil) != c.trusted {
			t.Errorf("%s: %v", file, err)
		}
	}
}
