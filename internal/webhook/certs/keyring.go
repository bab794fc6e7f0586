package certs

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// Keys of the Secret.
const (
	keyAuthorityCert = "ca.crt"
	keyAuthorityKey  = "ca.key"
	keyServingCert   = "tls.crt"
	keyServingKey    = "tls.key"
)

// keyring is what the Secret holds: one authority and one server certificate
// that it signed. It is written whole, so no reader ever sees halves of two.
type keyring struct {
	authority pair
	serving   pair
}

// renew returns a keyring fit to serve names from now on, and why it had to be
// made; an empty reason means that what is in data serves as it is. Data may
// hold anything: what is missing or broken is made anew.
//
// Names only ever grow: replicas that are reached under different names share
// one certificate, and each would otherwise take the others' names away.
func renew(now time.Time, data map[string][]byte, names Names) (keyring, string, error) {
	authority, why := readAuthority(now, data)
	if why != "" {
		return remake(now, names, why)
	}
	serving, why := readServing(now, data, authority, names)
	if why == "" {
		return keyring{authority: authority, serving: serving}, "", nil
	}
	if serving.cert != nil {
		for _, host := range namesOf(serving.cert).hosts() {
			names = names.with(host)
		}
	}
	serving, err := newServing(now, authority, names)
	return keyring{authority: authority, serving: serving}, why, err
}

func remake(now time.Time, names Names, why string) (keyring, string, error) {
	authority, err := newAuthority(now)
	if err != nil {
		return keyring{}, "", err
	}
	serving, err := newServing(now, authority, names)
	return keyring{authority: authority, serving: serving}, why, err
}

func readAuthority(now time.Time, data map[string][]byte) (pair, string) {
	if len(data[keyAuthorityCert]) == 0 || len(data[keyAuthorityKey]) == 0 {
		return pair{}, "there is no authority yet"
	}
	authority, err := parsePair(data[keyAuthorityCert], data[keyAuthorityKey])
	switch {
	case err != nil:
		return pair{}, fmt.Sprintf("the authority is unreadable: %v", err)
	case !authority.cert.IsCA:
		return pair{}, "the authority is not allowed to sign"
	case now.Before(authority.cert.NotBefore), now.After(authority.cert.NotAfter.Add(-renewBefore)):
		return pair{}, "the authority expires on " + day(authority.cert.NotAfter)
	}
	return authority, ""
}

// readServing returns the server certificate even where it must be replaced, as
// long as it can be read, for the names it holds.
func readServing(now time.Time, data map[string][]byte, authority pair, names Names) (pair, string) {
	if len(data[keyServingCert]) == 0 || len(data[keyServingKey]) == 0 {
		return pair{}, "there is no server certificate yet"
	}
	serving, err := parsePair(data[keyServingCert], data[keyServingKey])
	if err != nil {
		return pair{}, fmt.Sprintf("the server certificate is unreadable: %v", err)
	}
	if now.Before(serving.cert.NotBefore) || now.After(serving.cert.NotAfter.Add(-renewBefore)) {
		return serving, "the server certificate expires on " + day(serving.cert.NotAfter)
	}
	if !trusts([]*x509.Certificate{authority.cert}, serving.tls(), now) {
		return serving, "the authority did not sign the server certificate"
	}
	for _, host := range names.hosts() {
		if serving.cert.VerifyHostname(host) != nil {
			return serving, fmt.Sprintf("the server certificate is not valid for %q", host)
		}
	}
	return serving, ""
}

// expiry is when the keyring must next be renewed.
func (k keyring) expiry() time.Time {
	return slices.MinFunc([]time.Time{k.authority.cert.NotAfter, k.serving.cert.NotAfter}, time.Time.Compare).Add(-renewBefore)
}

func (k keyring) data() map[string][]byte {
	return map[string][]byte{
		keyAuthorityCert: k.authority.certPEM,
		keyAuthorityKey:  k.authority.keyPEM,
		keyServingCert:   k.serving.certPEM,
		keyServingKey:    k.serving.keyPEM,
	}
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
