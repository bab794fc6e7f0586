package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
)

// A bundle is the list of authorities a webhook configuration trusts.

// mostForeign bounds the authorities of others that a bundle keeps.
const mostForeign = 8

// memory is how long an authority that is not ours stays trusted after it was
// first seen: time enough for every replica to present the new certificate.
const memory = time.Hour

// parseBundle returns the certificates it can read; a bundle may hold a
// placeholder, or nothing.
func parseBundle(bundle []byte) []*x509.Certificate {
	var certs []*x509.Certificate
	for len(bundle) > 0 {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == cert.CertificateBlockType {
			certs = append(certs, c)
		}
	}
	return certs
}

func encodeBundle(certs []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certs {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw}))
	}
	return out.Bytes()
}

// trusts reports whether a TLS client with these authorities accepts what the
// server presents, under whatever name. A client without any uses those of its
// machine, as the API server does for an empty bundle.
func trusts(authorities []*x509.Certificate, presented *tls.Certificate, now time.Time) bool {
	_, err := presented.Leaf.Verify(x509.VerifyOptions{
		Roots:         poolOf(authorities),
		Intermediates: intermediates(presented),
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err == nil
}

// poolOf returns nil, which stands for the machine's own, for no authorities.
func poolOf(authorities []*x509.Certificate) *x509.CertPool {
	if len(authorities) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	for _, c := range authorities {
		pool.AddCert(c)
	}
	return pool
}

func intermediates(presented *tls.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, der := range presented.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			pool.AddCert(c)
		}
	}
	return pool
}

// recollection remembers since when authorities that are not ours have stood in
// some bundle.
type recollection map[string]time.Time

// merge returns the bundle that existing becomes: ours first, then what was
// there before and may still be in use. Expired authorities go at once, foreign
// ones when they have been seen for as long as memory lasts.
func (r recollection) merge(now time.Time, ours, existing []*x509.Certificate) []*x509.Certificate {
	merged := slices.Clone(ours)
	for _, c := range existing {
		if slices.ContainsFunc(merged, c.Equal) || now.After(c.NotAfter) || len(merged) >= len(ours)+mostForeign {
			continue
		}
		if now.Sub(r.since(c, now)) < memory {
			merged = append(merged, c)
		}
	}
	return merged
}

func (r recollection) since(c *x509.Certificate, now time.Time) time.Time {
	first, seen := r[string(c.Raw)]
	if !seen {
		first = now
		r[string(c.Raw)] = now
	}
	return first
}

// forget drops what no bundle holds any more, so that the recollection stays as
// small as the bundles.
func (r recollection) forget(bundles [][]*x509.Certificate) {
	for raw := range r {
		if !slices.ContainsFunc(bundles, func(b []*x509.Certificate) bool {
			return slices.ContainsFunc(b, func(c *x509.Certificate) bool { return string(c.Raw) == raw })
		}) {
			delete(r, raw)
		}
	}
}

func sameBundle(a, b []*x509.Certificate) bool {
	return slices.EqualFunc(a, b, (*x509.Certificate).Equal)
}
