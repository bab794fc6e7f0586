package certs

import (
	"crypto/rsa"
	"slices"
	"testing"
	"time"
)

const daylong = 24 * time.Hour

var (
	epoch     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	testHosts = ServiceHosts("lws-webhook-service", "lws-system", "10.0.0.7")
)

func freshRing(t *testing.T) keyring {
	t.Helper()
	ring, why, err := renew(epoch, nil, testHosts)
	if err != nil || why == "" {
		t.Fatalf("%q, %v", why, err)
	}
	return ring
}

func TestRenew(t *testing.T) {
	ring, other := freshRing(t), freshRing(t)
	changed := func(key string, value []byte) map[string][]byte {
		data := ring.data()
		data[key] = value
		return data
	}
	mixed := other.data()
	mixed[keyAuthorityCert], mixed[keyAuthorityKey] = ring.authority.certPEM, ring.authority.keyPEM
	leaf := ring.data()
	leaf[keyAuthorityCert], leaf[keyAuthorityKey] = ring.serving.certPEM, ring.serving.keyPEM
	for name, tt := range map[string]struct {
		now                time.Time
		data               map[string][]byte
		hosts              []string
		authority, serving bool // kept
	}{
		"fit":                           {epoch, ring.data(), testHosts, true, true},
		"fit, fewer hosts":              {epoch, ring.data(), testHosts[:1], true, true},
		"empty":                         {epoch, map[string][]byte{}, testHosts, false, false},
		"no server certificate":         {epoch, changed(keyServingCert, nil), testHosts, true, false},
		"unreadable server certificate": {epoch, changed(keyServingCert, []byte("x")), testHosts, true, false},
		"unreadable authority":          {epoch, changed(keyAuthorityKey, []byte("x")), testHosts, false, false},
		"an authority that cannot sign": {epoch, leaf, testHosts, false, false},
		"signed by another":             {epoch, mixed, testHosts, true, false},
		"a further host":                {epoch, ring.data(), []string{"example.com"}, true, false},
		"before the renewal":            {epoch.Add(servingTerm - renewBefore - daylong), ring.data(), testHosts, true, true},
		"server certificate expires":    {epoch.Add(servingTerm - renewBefore + daylong), ring.data(), testHosts, true, false},
		"authority expires":             {epoch.Add(authorityTerm - renewBefore + daylong), ring.data(), testHosts, false, false},
		"made in the future":            {epoch.Add(-daylong), ring.data(), testHosts, false, false},
	} {
		got, why, err := renew(tt.now, tt.data, tt.hosts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		authority, serving := got.authority.cert.Equal(ring.authority.cert), got.serving.cert.Equal(ring.serving.cert)
		if authority != tt.authority || serving != tt.serving || (why == "") != (authority && serving) {
			t.Errorf("%s: authority kept %t, server certificate kept %t: %s", name, authority, serving, why)
		}
		if why := got.mismatch(tt.now, tt.hosts); why != "" {
			t.Errorf("%s: the result is not fit: %s", name, why)
		}
		if _, why, err := renew(tt.now, got.data(), tt.hosts); why != "" || err != nil {
			t.Errorf("%s: the result is not stable: %s, %v", name, why, err)
		}
	}
}

// Replicas with different hosts share one certificate.
func TestHostsAreAdded(t *testing.T) {
	ring, _, err := renew(epoch, freshRing(t).data(), []string{"second.example.com", "10.0.0.8", "0.0.0.0", ""})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range slices.Concat(testHosts, []string{"second.example.com", "10.0.0.8"}) {
		if err := ring.serving.cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if err := ring.serving.cert.VerifyHostname("0.0.0.0"); err == nil {
		t.Error("the unspecified address names no host")
	}
}

// Other implementations insist on this form of the authority.
func TestTheAuthorityIsRSA(t *testing.T) {
	ring := freshRing(t)
	if _, is := ring.authority.key.(*rsa.PrivateKey); !is || ring.authority.cert.Subject.CommonName != "lws-ca" {
		t.Errorf("got %T of %s", ring.authority.key, ring.authority.cert.Subject)
	}
}
