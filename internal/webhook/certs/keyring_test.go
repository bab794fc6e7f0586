package certs

import (
	"bytes"
	"crypto/x509"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var epoch = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

const daylong = 24 * time.Hour

var testNames = ServiceNames("lws-webhook-service", "lws-system", "10.1.2.3", "lockstep.example")

// freshRing is made once: keys take time.
var freshRing = sync.OnceValue(func() keyring {
	ring, _, err := renew(epoch, nil, testNames)
	if err != nil {
		panic(err)
	}
	return ring
})

func TestFirstKeyringIsWhatItPromises(t *testing.T) {
	ring := freshRing()
	ca, leaf := ring.authority.cert, ring.serving.cert
	if ca.Subject.CommonName != "lws-ca" || !slices.Equal(ca.Subject.Organization, []string{"lws"}) || !ca.IsCA {
		t.Errorf("the authority is %v, CA %t", ca.Subject, ca.IsCA)
	}
	if got := ca.NotAfter.Sub(epoch); got != 10*365*daylong {
		t.Errorf("the authority lives %s", got)
	}
	if got := leaf.NotAfter.Sub(epoch); got != 365*daylong {
		t.Errorf("the server certificate lives %s", got)
	}
	for _, host := range []string{"lws-webhook-service.lws-system.svc", "localhost", "127.0.0.1", "::1", "10.1.2.3", "lockstep.example"} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: poolOf([]*x509.Certificate{ca}), CurrentTime: epoch, DNSName: host, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		if err != nil {
			t.Errorf("as %q: %v", host, err)
		}
	}
	if keys := slices.Sorted(maps.Keys(ring.data())); !slices.Equal(keys, []string{"ca.crt", "ca.key", "tls.crt", "tls.key"}) {
		t.Errorf("the Secret holds %q", keys)
	}
	if !bytes.HasPrefix(ring.data()["ca.key"], []byte("-----BEGIN RSA PRIVATE KEY-----")) {
		t.Error("other implementations read RSA keys in PKCS #1 only")
	}
	if !bytes.HasPrefix(ring.data()["tls.key"], []byte("-----BEGIN EC PRIVATE KEY-----")) {
		t.Error("the server's key is a dear one")
	}
}

func TestUnspecifiedHostsNameNobody(t *testing.T) {
	for _, host := range []string{"", "0.0.0.0", "::", "localhost", "127.0.0.1"} {
		if n := ServiceNames("s", "ns", host); len(n.hosts()) != 6 {
			t.Errorf("%q: %q", host, n.hosts())
		}
	}
}

func TestRenewal(t *testing.T) {
	good := freshRing().data()
	with := func(key string, value []byte) map[string][]byte {
		changed := maps.Clone(good)
		changed[key] = value
		return changed
	}
	strange, err := newAuthority(epoch)
	if err != nil {
		t.Fatal(err)
	}
	leafOfStrange, err := newServing(epoch, strange, testNames)
	if err != nil {
		t.Fatal(err)
	}
	unsigned := with(keyServingCert, leafOfStrange.certPEM)
	unsigned[keyServingKey] = leafOfStrange.keyPEM
	notAuthority := with(keyAuthorityCert, good[keyServingCert])
	notAuthority[keyAuthorityKey] = good[keyServingKey]
	for name, c := range map[string]struct {
		after     time.Duration
		data      map[string][]byte
		names     Names
		why       string
		keepsRoot bool
	}{
		"in order":                     {data: good, keepsRoot: true},
		"in order after nine months":   {after: 274 * daylong, data: good, keepsRoot: true},
		"ninety days to go":            {after: 276 * daylong, data: good, why: "the server certificate expires on 2027-08-01", keepsRoot: true},
		"expired while nobody looked":  {after: 400 * daylong, data: good, why: "the server certificate expires on 2027-08-01", keepsRoot: true},
		"the authority grows old":      {after: 3600 * daylong, data: good, why: "the authority expires on 2036-07-29"},
		"empty":                        {why: "there is no authority yet"},
		"no server certificate":        {data: with(keyServingCert, nil), why: "there is no server certificate yet", keepsRoot: true},
		"an unreadable authority":      {data: with(keyAuthorityCert, []byte("x")), why: "the authority is unreadable"},
		"a key of another's":           {data: with(keyAuthorityKey, strange.keyPEM), why: "the authority is unreadable"},
		"an unreadable server":         {data: with(keyServingKey, []byte("x")), why: "the server certificate is unreadable", keepsRoot: true},
		"an authority that is none":    {data: notAuthority, why: "the authority is not allowed to sign"},
		"signed by another":            {data: unsigned, why: "the authority did not sign the server certificate", keepsRoot: true},
		"one more name":                {data: good, names: ServiceNames("s", "ns"), why: `the server certificate is not valid for "s.ns.svc"`, keepsRoot: true},
		"made by a clock that is fast": {after: -2 * time.Hour, data: good, why: "the authority expires on"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.names.DNS == nil {
				c.names = testNames
			}
			now := epoch.Add(c.after)
			ring, why, err := renew(now, c.data, c.names)
			if err != nil || !strings.HasPrefix(why, c.why) || (why == "") != (c.why == "") {
				t.Fatalf("got %q, %v; want %q", why, err, c.why)
			}
			if kept := ring.authority.equal(freshRing().authority); kept != c.keepsRoot {
				t.Errorf("kept the authority: %t", kept)
			}
			if !trusts([]*x509.Certificate{ring.authority.cert}, ring.serving.tls(), now) {
				t.Error("the keyring does not trust itself")
			}
			if again, why, err := renew(now, ring.data(), c.names); err != nil || why != "" || !again.serving.equal(ring.serving) {
				t.Errorf("a second look renews again: %q, %v", why, err)
			}
		})
	}
}

func TestReplicasUnderDifferentNamesKeepEachOthers(t *testing.T) {
	ring, _, err := renew(epoch, freshRing().data(), ServiceNames("other", "ns", "192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, why, err := renew(epoch, ring.data(), testNames); why != "" || err != nil {
		t.Errorf("the first replica would renew in turn: %q, %v", why, err)
	}
	if !slices.ContainsFunc(ring.serving.cert.IPAddresses, net.ParseIP("192.0.2.1").Equal) {
		t.Errorf("got %v", ring.serving.cert.IPAddresses)
	}
}

func TestServerCertificateNeverOutlivesItsAuthority(t *testing.T) {
	late := freshRing().authority.cert.NotAfter.Add(-renewBefore - daylong)
	ring, _, err := renew(late, map[string][]byte{keyAuthorityCert: freshRing().authority.certPEM, keyAuthorityKey: freshRing().authority.keyPEM}, testNames)
	if err != nil || ring.serving.cert.NotAfter.After(ring.authority.cert.NotAfter) {
		t.Errorf("server until %s, authority until %s, %v", ring.serving.cert.NotAfter, ring.authority.cert.NotAfter, err)
	}
}
