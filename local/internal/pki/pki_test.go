package pki

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func newAuthority(t *testing.T, name string) *Authority {
	t.Helper()
	authority, err := NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// leaf parses a pair, which also proves that key and certificate belong
// together.
func leaf(t *testing.T, pair Pair, err error) *x509.Certificate {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return both.Leaf
}

func trusts(authority *Authority, cert *x509.Certificate, host string, usage x509.ExtKeyUsage) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Cert)
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestClientIsAUserOfItsAuthorityOnly(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	pair, err := ours.Client("ann", "system:masters", "staff")
	cert := leaf(t, pair, err)
	slices.Sort(cert.Subject.Organization) // a set in X.509
	if diff := cmp.Diff([]string{"staff", "system:masters"}, cert.Subject.Organization); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if cert.Subject.CommonName != "ann" {
		t.Errorf("user %q, want ann", cert.Subject.CommonName)
	}
	if err := trusts(ours, cert, "", x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
	if trusts(ours, cert, "", x509.ExtKeyUsageServerAuth) == nil {
		t.Error("a client's certificate can serve")
	}
	if trusts(theirs, cert, "", x509.ExtKeyUsageClientAuth) == nil {
		t.Error("another authority trusts it")
	}
}

func TestServingHoldsForItsHosts(t *testing.T) {
	ours := newAuthority(t, "ours")
	pair, err := ours.Serving("server", "127.0.0.1", "kubernetes.default")
	cert := leaf(t, pair, err)
	for _, host := range []string{"127.0.0.1", "kubernetes.default"} {
		if err := trusts(ours, cert, host, x509.ExtKeyUsageServerAuth); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if trusts(ours, cert, "example.com", x509.ExtKeyUsageServerAuth) == nil {
		t.Error("holds for a host that was not named")
	}
}
