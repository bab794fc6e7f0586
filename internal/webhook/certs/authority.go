package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// AuthoritySecret is the Secret of the certificate authority, in the operator's namespace. Installers write it.
const AuthoritySecret = "lws-webhook-authority"

// Keys of that Secret. An earlier version, and other implementations, have the same in the Secret of the
// serving certificate.
const (
	AuthorityCert = "ca.crt"
	AuthorityKey  = "ca.key"
)

const (
	day = 24 * time.Hour
	// authorityTerm is the life of an authority that install makes.
	authorityTerm = 10 * 365 * day
	// ServingTerm is the life of a serving certificate, unless its authority ends earlier.
	ServingTerm = 90 * day
	renewBefore = 30 * day
	// clockSkew is how far the clocks of two machines may be apart.
	clockSkew = time.Hour
	// authorityName is the subject of an authority that install makes.
	authorityName = "lockstep-webhook-authority"
	// mostOlder bounds the authorities that a bundle keeps.
	mostOlder = 2
)

// MakeAuthority returns the data of a Secret with a new authority.
func MakeAuthority(now time.Time) (map[string][]byte, error) {
	made, err := signed(now, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: authorityName}, NotAfter: now.Add(authorityTerm),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, MaxPathLenZero: true,
	})
	if err != nil {
		return nil, err
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(made.PrivateKey)
	return map[string][]byte{AuthorityCert: PEM(made.Leaf), AuthorityKey: key}, err
}

// IsDue reports whether an authority is an installer's own, and ends within a year: install makes another.
func IsDue(authority *x509.Certificate, now time.Time) bool {
	return authority.Subject.CommonName == authorityName && now.AddDate(1, 0, 0).After(authority.NotAfter)
}

// ReadAuthority returns the authority in the data of a Secret.
func ReadAuthority(data map[string][]byte, now time.Time) (*tls.Certificate, error) {
	if _, err := ReadAuthorityCert(data[AuthorityCert], now); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(data[AuthorityCert], data[AuthorityKey])
	if err != nil {
		return nil, fmt.Errorf("%s does not fit %s: %w", AuthorityKey, AuthorityCert, err)
	}
	return &pair, nil
}

// ReadAuthorityCert returns the certificate of an authority, which is the first in a file. Webhooks trust the others as well.
func ReadAuthorityCert(file []byte, now time.Time) (*x509.Certificate, error) {
	all, err := cert.ParseCertsPEM(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", AuthorityCert, err)
	}
	switch c := all[0]; {
	case !c.IsCA || c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf("%s: certificate %q is no authority", AuthorityCert, c.Subject)
	case now.After(c.NotAfter) || now.Before(c.NotBefore):
		return nil, fmt.Errorf("%s: authority %q is valid from %s to %s alone", AuthorityCert, c.Subject, date(c.NotBefore), date(c.NotAfter))
	default:
		return c, nil
	}
}

// Bundle returns the bundle of a webhook: the file of the authority, and what an earlier bundle has besides and is still
// valid. Replicas may present a certificate of an older authority until each has seen the new one.
func Bundle(now time.Time, authority, before []byte) []byte {
	older, _ := cert.ParseCertsPEM(before) // it may hold a placeholder
	older = slices.DeleteFunc(older, func(c *x509.Certificate) bool {
		return now.After(c.NotAfter) || bytes.Contains(authority, PEM(c))
	})
	return slices.Concat(authority, PEM(older[:min(len(older), mostOlder)]...))
}

// Normal returns the certificates in a file, without other text.
func Normal(file []byte) []byte {
	all, _ := cert.ParseCertsPEM(file) // it was read before
	return PEM(all...)
}

// PEM returns certificates as a file.
func PEM(all ...*x509.Certificate) []byte {
	file, _ := cert.EncodeCertificates(all...) // what was parsed can be encoded
	return file
}

// serving makes a serving certificate. Its key is ECDSA: the server signs each connection, and the API server
// opens many.
func serving(now time.Time, authority *tls.Certificate, hosts []string) (*tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: "lws-webhook-server", Organization: []string{"lws"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotAfter = now.Add(ServingTerm); authority.Leaf.NotAfter.Before(template.NotAfter) {
		template.NotAfter = authority.Leaf.NotAfter
	}
	for _, host := range hosts {
		switch ip := net.ParseIP(host); {
		case host == "" || ip.IsUnspecified():
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		default:
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return signed(now, authority, template)
}

// signed completes a certificate, and has it signed by an authority, or by itself.
func signed(now time.Time, by *tls.Certificate, template *x509.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template.NotBefore, template.BasicConstraintsValid = now.Add(-clockSkew), true
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// ServiceHosts returns the names by which a Service is called from inside the cluster,
// those of the loopback interface, and a further host, which may be empty.
func ServiceHosts(service, namespace, host string) []string {
	name := service + "." + namespace
	hosts := []string{name + ".svc", name + ".svc.cluster.local", name, "localhost", "127.0.0.1", "::1"}
	if host != "" && !net.ParseIP(host).IsUnspecified() {
		hosts = append(hosts, host)
	}
	return hosts
}

func date(t time.Time) string { return t.UTC().Format(time.DateOnly) }
