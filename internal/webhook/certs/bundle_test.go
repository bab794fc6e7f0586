package certs

import (
	"crypto/x509"
	"testing"
	"time"
)

// authorities makes n authorities; the slow part is done once per test.
func authorities(t *testing.T, n int) []*x509.Certificate {
	t.Helper()
	all := make([]*x509.Certificate, n)
	for i := range all {
		p, err := newAuthority(epoch)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = p.cert
	}
	return all
}

func TestBundleKeepsTheOldAuthorityForAWhile(t *testing.T) {
	ca := authorities(t, 2)
	ours, old := ca[:1], ca[1:]
	r := recollection{}
	both := r.merge(epoch, ours, old)
	if !sameBundle(both, []*x509.Certificate{ours[0], old[0]}) {
		t.Fatalf("got %d certificates, want ours and then the old one", len(both))
	}
	if again := r.merge(epoch.Add(memory-time.Second), ours, both); !sameBundle(again, both) {
		t.Error("the old one was forgotten too early")
	}
	if later := r.merge(epoch.Add(memory), ours, both); !sameBundle(later, ours) {
		t.Error("the old one was never forgotten")
	}
}

func TestBundleDropsExpiredAuthoritiesAtOnce(t *testing.T) {
	ca := authorities(t, 2)
	late := ca[1].NotAfter.Add(time.Second)
	if got := (recollection{}).merge(late, ca[:1], ca[1:]); !sameBundle(got, ca[:1]) {
		t.Errorf("got %d certificates", len(got))
	}
}

func TestBundleIsBounded(t *testing.T) {
	ca := authorities(t, mostForeign+3)
	if got := (recollection{}).merge(epoch, ca[:1], ca[1:]); len(got) != 1+mostForeign {
		t.Errorf("got %d certificates", len(got))
	}
}

func TestBundleIsReadWhateverItHolds(t *testing.T) {
	ca := authorities(t, 1)
	text := encodeBundle(ca)
	key := freshRing().authority.keyPEM
	for name, bundle := range map[string][]byte{
		"as written":       text,
		"twice":            append(append([]byte{}, text...), text...),
		"among other text": append(append([]byte("placeholder\n"), text...), "rest"...),
		"beside a key":     append(append([]byte{}, key...), text...),
	} {
		if got := (recollection{}).merge(epoch, ca, parseBundle(bundle)); !sameBundle(got, ca) {
			t.Errorf("%s: got %d certificates", name, len(got))
		}
	}
	if got := parseBundle([]byte("\n")); got != nil {
		t.Errorf("a placeholder holds %d certificates", len(got))
	}
}

func TestRecollectionForgetsWhatNoBundleHolds(t *testing.T) {
	ca := authorities(t, 3)
	r := recollection{}
	merged := r.merge(epoch, ca[:1], ca[1:])
	r.forget([][]*x509.Certificate{merged[:2]})
	if len(r) != 1 {
		t.Errorf("it remembers %d authorities, want the one still there", len(r))
	}
}
