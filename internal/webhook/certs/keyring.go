package certs

import (
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
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Keys of the Secret.
const (
	keyAuthorityCert = "ca.crt"
	keyAuthorityKey  = "ca.key"
	keyServingCert   = "tls.crt"
	keyServingKey    = "tls.key"
)

// Other implementations use the same names and terms, so one can take over from the other
// with the Secret as it is. They also insist on an authority with an RSA key in PKCS #1.
// The server's key is ECDSA: it signs each connection, and the API server opens many.
const (
	authorityName         = "lws-ca"
	authorityOrganization = "lws"
	servingName           = "lws-webhook-server"
	authorityTerm         = 10 * 365 * 24 * time.Hour
	servingTerm           = 365 * 24 * time.Hour
	renewBefore           = 90 * 24 * time.Hour
	keyBits               = 2048

	// clockSkew is how far the clocks of two machines may be apart.
	clockSkew = time.Hour
)

// pair is a certificate and its private key.
type pair struct {
	cert            *x509.Certificate
	key             crypto.Signer
	certPEM, keyPEM []byte
}

// keyring is what the Secret holds: one authority and one server certificate that it
// signed. It is written as a whole, so no reader sees halves of two.
type keyring struct{ authority, serving pair }

func (k keyring) data() map[string][]byte {
	return map[string][]byte{
		keyAuthorityCert: k.authority.certPEM, keyAuthorityKey: k.authority.keyPEM,
		keyServingCert: k.serving.certPEM, keyServingKey: k.serving.keyPEM,
	}
}

// tls returns the server certificate as a TLS server presents it.
func (k keyring) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{k.serving.cert.Raw}, PrivateKey: k.serving.key, Leaf: k.serving.cert}
}

// expiry returns when the keyring must be renewed.
func (k keyring) expiry() time.Time {
	return slices.MinFunc([]time.Time{k.authority.cert.NotAfter, k.serving.cert.NotAfter}, time.Time.Compare).Add(-renewBefore)
}

// renew returns a keyring that is fit to serve hosts, and why it had to be made. An empty
// reason means that data is fit as it is. Data that is missing or broken is made anew.
//
// Hosts are added to those of the old certificate: replicas that are called by different
// names share one, and would otherwise remove each other's names.
func renew(now time.Time, data map[string][]byte, hosts []string) (ring keyring, why string, err error) {
	ring.authority, why = read(now, data, "authority", keyAuthorityCert, keyAuthorityKey)
	if why == "" && !ring.authority.cert.IsCA {
		why = "the authority may not sign"
	}
	if why != "" {
		if ring.authority, err = newAuthority(now); err != nil {
			return ring, why, err
		}
		ring.serving, err = newServing(now, ring.authority, hosts)
		return ring, why, err
	}
	ring.serving, why = read(now, data, "server certificate", keyServingCert, keyServingKey)
	if why == "" {
		why = ring.mismatch(now, hosts)
	}
	if why == "" {
		return ring, "", nil
	}
	if old := ring.serving.cert; old != nil {
		hosts = slices.Concat(hosts, old.DNSNames)
		for _, ip := range old.IPAddresses {
			hosts = append(hosts, ip.String())
		}
	}
	ring.serving, err = newServing(now, ring.authority, hosts)
	return ring, why, err
}

// read parses one pair, and returns why it must be replaced.
func read(now time.Time, data map[string][]byte, what, certKey, keyKey string) (pair, string) {
	if len(data[certKey]) == 0 || len(data[keyKey]) == 0 {
		return pair{}, "there is no " + what + " yet"
	}
	p, err := parsePair(data[certKey], data[keyKey])
	if err != nil {
		return pair{}, fmt.Sprintf("the %s is unreadable: %v", what, err)
	}
	if now.Before(p.cert.NotBefore) || now.After(p.cert.NotAfter.Add(-renewBefore)) {
		return p, "the " + what + " expires on " + day(p.cert.NotAfter)
	}
	return p, ""
}

// mismatch returns why the server certificate does not serve hosts.
func (k keyring) mismatch(now time.Time, hosts []string) string {
	if !trusts([]*x509.Certificate{k.authority.cert}, k.tls(), now) {
		return "the authority did not sign the server certificate"
	}
	for _, host := range hosts {
		if k.serving.cert.VerifyHostname(host) != nil {
			return fmt.Sprintf("the server certificate is not valid for %q", host)
		}
	}
	return ""
}

func newAuthority(now time.Time) (pair, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return pair{}, fmt.Errorf("make a key: %w", err)
	}
	return issue(&x509.Certificate{
		Subject:   pkix.Name{CommonName: authorityName, Organization: []string{authorityOrganization}},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityTerm),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true,
	}, key, pair{})
}

// newServing returns a server certificate that does not outlive its authority.
func newServing(now time.Time, authority pair, hosts []string) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: servingName},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(servingTerm),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if template.NotAfter.After(authority.cert.NotAfter) {
		template.NotAfter = authority.cert.NotAfter
	}
	for _, host := range hosts {
		switch ip := net.ParseIP(host); {
		case host == "" || ip.IsUnspecified() || template.VerifyHostname(host) == nil:
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		default:
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return issue(template, key, authority)
}

// issue signs a certificate by an authority, or by its own key if there is none.
func issue(template *x509.Certificate, key crypto.Signer, authority pair) (made pair, err error) {
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return pair{}, fmt.Errorf("make a serial number: %w", err)
	}
	if authority.cert == nil {
		authority = pair{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.cert, key.Public(), authority.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign a certificate: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode a key: %w", err)
	}
	return parsePair(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), keyPEM)
}

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

// ServiceHosts returns the names by which a Service is called from inside the cluster,
// those of the loopback interface, and a further host if it is not empty.
func ServiceHosts(service, namespace, host string) []string {
	name := service + "." + namespace
	hosts := []string{name + ".svc", name + ".svc.cluster.local", name, "localhost", "127.0.0.1", "::1"}
	if host != "" && !net.ParseIP(host).IsUnspecified() {
		hosts = append(hosts, host)
	}
	return hosts
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
