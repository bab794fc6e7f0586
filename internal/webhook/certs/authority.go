package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// Names and terms other implementations use as well, so that one can take over
// from the other with the Secret as it stands. For the same reason the authority's
// key is RSA in PKCS #1, which the others insist on. The server's is not: a server
// proves that it holds it with every connection, and the API server makes a new one
// for each pod when many come at once. There RSA cost a fifth of the operator's time.
const (
	authorityName         = "lws-ca"
	authorityOrganization = "lws"
	servingName           = "lws-webhook-server"
	authorityLife         = 10 * 365 * 24 * time.Hour
	servingLife           = 365 * 24 * time.Hour
	renewBefore           = 90 * 24 * time.Hour
	keyBits               = 2048

	// clockSkew is how far the clocks of two machines may be apart.
	clockSkew = time.Hour
)

// pair is a certificate and its private key, as kept in memory and as written.
type pair struct {
	cert    *x509.Certificate
	key     crypto.Signer
	certPEM []byte
	keyPEM  []byte
}

// newAuthority makes a certificate authority of its own making.
func newAuthority(now time.Time) (pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: authorityName, Organization: []string{authorityOrganization}},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return pair{}, fmt.Errorf("make a key: %w", err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: keyutil.RSAPrivateKeyBlockType, Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return issue(template, key, keyPEM, nil)
}

// newServing makes a server certificate for names, signed by authority. It
// never outlives its authority.
func newServing(now time.Time, authority pair, names Names) (pair, error) {
	until := now.Add(servingLife)
	if until.After(authority.cert.NotAfter) {
		until = authority.cert.NotAfter
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: servingName},
		DNSNames:              names.DNS,
		IPAddresses:           names.IPs,
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode a key: %w", err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der})
	return issue(template, key, keyPEM, &authority)
}

// issue makes a certificate of template for a key, signed by authority, or by that
// key itself where there is none.
func issue(template *x509.Certificate, key crypto.Signer, keyPEM []byte, authority *pair) (made pair, err error) {
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return pair{}, fmt.Errorf("make a serial number: %w", err)
	}
	parent, signer := template, key
	if authority != nil {
		parent, signer = authority.cert, authority.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return pair{}, fmt.Errorf("sign a certificate: %w", err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return parsePair(certPEM, keyPEM)
}

// parsePair reads a certificate and the key that belongs to it.
func parsePair(certPEM, keyPEM []byte) (pair, error) {
	loaded, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return pair{}, err
	}
	signer, ok := loaded.PrivateKey.(crypto.Signer)
	if !ok {
		return pair{}, fmt.Errorf("a %T cannot sign", loaded.PrivateKey)
	}
	return pair{cert: loaded.Leaf, key: signer, certPEM: certPEM, keyPEM: keyPEM}, nil
}

// tls returns the pair as a TLS server presents it.
func (p pair) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key, Leaf: p.cert}
}

func (p pair) equal(other pair) bool { return bytes.Equal(p.certPEM, other.certPEM) }

// Names are what a server certificate is valid for. DNS is never empty.
type Names struct {
	DNS []string
	IPs []net.IP
}

// ServiceNames returns the names under which a Service is called from inside
// the cluster, the names of the loopback interface, and extra hosts.
func ServiceNames(service, namespace string, hosts ...string) Names {
	n := Names{
		DNS: []string{
			service + "." + namespace + ".svc",
			service + "." + namespace + ".svc.cluster.local",
			service + "." + namespace,
			"localhost",
		},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, host := range hosts {
		n = n.with(host)
	}
	return n
}

// with adds a host; the empty and the unspecified address name nobody.
func (n Names) with(host string) Names {
	ip := net.ParseIP(host)
	switch {
	case host == "" || n.cover(host) || (ip != nil && ip.IsUnspecified()):
	case ip != nil:
		n.IPs = append(n.IPs, ip)
	default:
		n.DNS = append(n.DNS, host)
	}
	return n
}

func (n Names) cover(host string) bool {
	return (&x509.Certificate{DNSNames: n.DNS, IPAddresses: n.IPs}).VerifyHostname(host) == nil
}

// hosts lists all names as text.
func (n Names) hosts() []string {
	all := append([]string(nil), n.DNS...)
	for _, ip := range n.IPs {
		all = append(all, ip.String())
	}
	return all
}

// namesOf returns what a certificate is valid for.
func namesOf(c *x509.Certificate) Names { return Names{DNS: c.DNSNames, IPs: c.IPAddresses} }
