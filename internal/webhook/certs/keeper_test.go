package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// stage is a cluster with the two webhook configurations, and a clock.
type stage struct {
	t       *testing.T
	client  client.Client
	clock   *clocktesting.FakePassiveClock
	patches int
	// winner is a Secret that another replica creates first.
	winner *keyring
}

func newStage(t *testing.T) *stage {
	t.Helper()
	m := &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{Name: "a"}, {Name: "b"}}}
	v := &admissionv1.ValidatingWebhookConfiguration{Webhooks: []admissionv1.ValidatingWebhook{{Name: "c"}}}
	m.Name, v.Name = "m", "v"
	service := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "lws-system", Name: "lws-webhook-service"}, CABundle: []byte("\n")}
	m.Webhooks[0].ClientConfig, m.Webhooks[1].ClientConfig = service, service
	v.Webhooks[0].ClientConfig.URL = new("https://10.0.0.7:9443/v")
	s := &stage{t: t, clock: clocktesting.NewFakePassiveClock(epoch)}
	s.client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(m, v).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			s.patches++
			return c.Patch(ctx, o, p, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if winner := s.winner; winner != nil {
				s.winner = nil
				other := o.DeepCopyObject().(*corev1.Secret)
				other.Data = winner.data()
				if err := c.Create(ctx, other); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	return s
}

func (s *stage) keeper() *Keeper {
	return s.keeperOf(&SharedSecret{Client: s.client, Key: client.ObjectKey{Namespace: "lws-system", Name: "cert"}, Hosts: testHosts, Log: logr.Discard()})
}

func (s *stage) keeperOf(source Source) *Keeper {
	return NewKeeper(Options{Source: source, Client: s.client, Clock: s.clock, Log: logr.Discard(), MutatingConfiguration: "m", ValidatingConfiguration: "v"})
}

// keep makes a pass. Afterwards each caller must accept what the keeper presents.
func (s *stage) keep(k *Keeper) time.Duration {
	s.t.Helper()
	next, err := k.keep(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.mustAccept(k)
	return next
}

func (s *stage) mustAccept(k *Keeper) {
	s.t.Helper()
	for i, bundle := range s.bundles() {
		if !trusts(bundle, s.presented(k), s.clock.Now()) {
			s.t.Fatalf("at %s caller %d refuses the server", s.clock.Now().Sub(epoch), i)
		}
	}
}

func (s *stage) bundles() (all [][]*x509.Certificate) {
	s.t.Helper()
	for _, c := range (Options{MutatingConfiguration: "m", ValidatingConfiguration: "v"}).configurations() {
		if err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			s.t.Fatal(err)
		}
		for _, to := range clientConfigs(c) {
			all = append(all, parseBundle(to.CABundle))
		}
	}
	return all
}

func (s *stage) presented(k *Keeper) *tls.Certificate {
	s.t.Helper()
	c, err := k.GetCertificate(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func TestTheFirstPassMakesAllAgreeAndTheNextWritesNothing(t *testing.T) {
	s := newStage(t)
	a, b := s.keeper(), s.keeper()
	if _, err := a.GetCertificate(nil); err == nil {
		t.Error("a certificate is presented before the first pass")
	}
	if next := s.keep(a); next != recheck {
		t.Errorf("next pass in %s", next)
	}
	s.keep(a)
	s.keep(b)
	if s.patches != 2 || !s.presented(a).Leaf.Equal(s.presented(b).Leaf) {
		t.Errorf("%d configurations written", s.patches)
	}
}

func TestTheLoserOfTheCreationTakesTheWinnersCertificate(t *testing.T) {
	s := newStage(t)
	winner := freshRing(t)
	s.winner = &winner
	k := s.keeper()
	s.keep(k)
	if !s.presented(k).Leaf.Equal(winner.serving.cert) {
		t.Error("the loser presents a certificate of its own")
	}
}

// A new authority is trusted before its certificate is presented, and the old one stays
// for replicas that present the old certificate.
func TestANewAuthorityLeavesNoGap(t *testing.T) {
	s := newStage(t)
	a, b := s.keeper(), s.keeper()
	s.keep(a)
	s.keep(b)
	old := s.presented(a)
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = "lws-system", "cert"
	if err := s.client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if next := s.keep(a); next != settle || !s.presented(a).Leaf.Equal(old.Leaf) {
		t.Fatalf("presented at once, next pass in %s", next)
	}
	s.keep(a)
	s.mustAccept(b)
	if s.presented(a).Leaf.Equal(old.Leaf) {
		t.Error("the old certificate is still presented")
	}
	for _, bundle := range s.bundles() {
		if len(bundle) != 2 {
			t.Errorf("a bundle has %d authorities", len(bundle))
		}
	}
}

func TestMerge(t *testing.T) {
	ours, old, older, oldest := freshRing(t).authority.cert, freshRing(t).authority.cert, freshRing(t).authority.cert, freshRing(t).authority.cert
	list := func(c ...*x509.Certificate) []*x509.Certificate { return c }
	for name, tt := range map[string]struct {
		now                  time.Time
		ours, existing, want []*x509.Certificate
	}{
		"empty":               {epoch, list(ours), nil, list(ours)},
		"known":               {epoch, list(ours), list(ours), list(ours)},
		"ours first":          {epoch, list(ours), list(old, ours), list(ours, old)},
		"bounded":             {epoch, list(ours), list(old, older, oldest), list(ours, old, older)},
		"expired":             {epoch.Add(authorityTerm + daylong), list(ours), list(old), list(ours)},
		"another's to manage": {epoch, nil, list(old, older), list(old, older)},
	} {
		got := merge(tt.now, tt.ours, tt.existing)
		if len(got) != len(tt.want) {
			t.Errorf("%s: %d authorities, want %d", name, len(got), len(tt.want))
			continue
		}
		for i := range got {
			if !got[i].Equal(tt.want[i]) {
				t.Errorf("%s: authority %d differs", name, i)
			}
		}
	}
}

func TestFilesAreServed(t *testing.T) {
	for name, withAuthority := range map[string]bool{"bundles are ours": true, "bundles are another's": false} {
		s, dir, ring := newStage(t), t.TempDir(), freshRing(t)
		for file, text := range ring.data() {
			if file == keyAuthorityCert && !withAuthority {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		files, err := NewFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		k := s.keeperOf(files)
		if _, err := k.keep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !s.presented(k).Leaf.Equal(ring.serving.cert) || (s.patches > 0) != withAuthority {
			t.Errorf("%s: %d patches", name, s.patches)
		}
	}
}

func TestReadiness(t *testing.T) {
	s := newStage(t)
	k := s.keeper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: k.GetCertificate, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go accept(l)
	mustSay := func(want string) {
		t.Helper()
		if err := k.Trusted(t.Context(), l.Addr().String()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	mustSay("not been read")
	s.clock.SetTime(time.Now()) // a TLS client goes by the time of the machine
	s.keep(k)
	if err := k.Trusted(t.Context(), l.Addr().String()); err != nil {
		t.Error(err)
	}
	k.callers[0].host = "elsewhere.example.com"
	mustSay("elsewhere.example.com")
	m := &admissionv1.MutatingWebhookConfiguration{}
	m.Name = "m"
	if err := s.client.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if _, err := k.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustSay("lockstep install")
}

func accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.(*tls.Conn).Handshake()
		_ = conn.Close()
	}
}
