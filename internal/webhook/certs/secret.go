package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keys of the Secret. Other implementations use the same, so one
// serves with the certificate of the other until it makes its own.
const (
	keyAuthority    = "ca.crt"
	keyServingCert  = "tls.crt"
	keyServingKey   = "tls.key"
	keyAuthorityKey = "ca.key" // of another implementation
)

// mostOlder bounds the authorities that a bundle keeps of earlier certificates.
const mostOlder = 2

const (
	servingTerm = 365 * 24 * time.Hour
	renewBefore = 90 * 24 * time.Hour
	// clockSkew is how far the clocks of two machines may be apart.
	clockSkew = time.Hour
)

// fromSecret returns the certificate in the Secret, made anew if it is not fit. A write names
// the version that was read, so two replicas that make one at the same time end up with the
// same: the second reads again.
//
// Hosts are added to those of the old certificate: replicas that are called by different
// names share one, and would otherwise remove each other's names.
func (k *Keeper) fromSecret(ctx context.Context, now time.Time) (offer, error) {
	secret := &corev1.Secret{}
	err := k.options.Client.Get(ctx, k.options.Secret, secret)
	if client.IgnoreNotFound(err) != nil {
		return offer{}, err
	}
	isAbsent := apierrors.IsNotFound(err)
	found := offerOf(secret.Data)
	why := found.unfit(now, k.options.Hosts)
	if why == "" {
		return found, nil
	}
	hosts := slices.Clone(k.options.Hosts)
	if found.serving != nil {
		hosts = append(hosts, found.serving.Leaf.DNSNames...)
		for _, ip := range found.serving.Leaf.IPAddresses {
			hosts = append(hosts, ip.String())
		}
	}
	made, err := issue(now, hosts)
	if err != nil {
		return offer{}, fmt.Errorf("make a certificate: %w", err)
	}
	made[keyAuthority] = withOlder(now, made[keyAuthority], secret.Data[keyAuthority])
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, made)
	delete(secret.Data, keyAuthorityKey)
	if isAbsent {
		secret.Namespace, secret.Name = k.options.Secret.Namespace, k.options.Secret.Name
		err = k.options.Client.Create(ctx, secret)
	} else {
		err = k.options.Client.Update(ctx, secret)
	}
	found = offerOf(secret.Data)
	if err == nil {
		k.options.Log.Info("made a webhook certificate", "secret", k.options.Secret.String(), "because", why, "expires", day(found.serving.Leaf.NotAfter))
	}
	return found, err
}

// withOlder adds to a bundle the authorities of the one before that are still valid: replicas
// present the old certificate until each has seen the new one.
func withOlder(now time.Time, bundle, before []byte) []byte {
	older, _ := cert.ParseCertsPEM(before) // it may hold a placeholder
	older = slices.DeleteFunc(older, func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
	text, _ := cert.EncodeCertificates(older[:min(len(older), mostOlder)]...) // what was parsed can be encoded
	return slices.Concat(bundle, text)
}

// offerOf returns what can be read.
func offerOf(data map[string][]byte) (o offer) {
	o.bundle = data[keyAuthority]
	if pair, err := tls.X509KeyPair(data[keyServingCert], data[keyServingKey]); err == nil {
		o.serving = &pair
	}
	return o
}

// unfit returns why the certificate must be replaced.
func (o offer) unfit(now time.Time, hosts []string) string {
	switch {
	case o.serving == nil:
		return "there is none that can be read"
	case now.Before(o.serving.Leaf.NotBefore):
		return "it is from the future"
	case !trusts(o.bundle, o.serving, "", now.Add(renewBefore)):
		return "its authority did not sign it, or it expires on " + day(o.serving.Leaf.NotAfter)
	}
	for _, host := range hosts {
		if o.serving.Leaf.VerifyHostname(host) != nil {
			return fmt.Sprintf("it is not valid for %q", host)
		}
	}
	return ""
}

// issue makes a server certificate that is its own authority and may not sign another. The key is ECDSA: the server signs each connection, and the API server opens many.
func issue(now time.Time, hosts []string) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "lws-webhook-server", Organization: []string{"lws"}},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(servingTerm),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
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
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	serving := pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	return map[string][]byte{keyAuthority: serving, keyServingCert: serving, keyServingKey: keyPEM}, err
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
