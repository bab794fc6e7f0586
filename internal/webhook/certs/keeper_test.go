package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestNothingIsPresentedBeforeTheFirstPass(t *testing.T) {
	if _, err := newStage(t, interceptor.Funcs{}).keeper().GetCertificate(nil); err == nil {
		t.Error("got a certificate out of nothing")
	}
}

func TestFirstPassMakesEverythingAgree(t *testing.T) {
	s := newStage(t, interceptor.Funcs{})
	k := s.keeper()
	if next := s.keep(k); next != recheck {
		t.Errorf("next pass in %s", next)
	}
	s.mustAccept(k)
}

func TestSecondPassWritesNothing(t *testing.T) {
	writes := 0
	s := newStage(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, o, p, opts...)
		},
	})
	k := s.keeper()
	s.keep(k)
	if writes != 2 {
		t.Fatalf("the first pass wrote %d configurations, want 2", writes)
	}
	s.keep(k)
	s.keep(s.keeper())
	if writes != 2 {
		t.Errorf("further passes wrote %d more", writes-2)
	}
}

func TestReplicasShareOneCertificate(t *testing.T) {
	s := newStage(t, interceptor.Funcs{})
	a, b := s.keeper(), s.keeper()
	s.keep(a)
	s.keep(b)
	if !sameLeaf(s.presented(a), s.presented(b)) {
		t.Error("two replicas present two certificates")
	}
}

func TestLoserOfTheFirstCreationTakesTheWinners(t *testing.T) {
	var winner keyring
	s := newStage(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if winner.serving.cert == nil {
				winner = freshRing()
				other := o.DeepCopyObject().(*corev1.Secret)
				other.Data = winner.data()
				if err := c.Create(ctx, other); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		},
	})
	k := s.keeper()
	s.keep(k)
	if !s.presented(k).Leaf.Equal(winner.serving.cert) {
		t.Error("the loser presents a certificate of its own")
	}
}

func TestBundleThatIsWipedIsRestored(t *testing.T) {
	s := newStage(t, interceptor.Funcs{})
	k := s.keeper()
	s.keep(k)
	v := &admissionv1.ValidatingWebhookConfiguration{}
	if err := s.client.Get(context.Background(), client.ObjectKey{Name: "v"}, v); err != nil {
		t.Fatal(err)
	}
	v.Webhooks[0].ClientConfig.CABundle = []byte("\n")
	if err := s.client.Update(context.Background(), v); err != nil {
		t.Fatal(err)
	}
	s.keep(k)
	s.mustAccept(k)
}

func TestRenewalChangesOverWithoutAGap(t *testing.T) {
	s := newStage(t, interceptor.Funcs{})
	k := s.keeper()
	s.keep(k)
	first := s.presented(k)
	s.pass(280 * daylong)
	if next := s.keep(k); next != settle || !sameLeaf(first, s.presented(k)) {
		t.Fatalf("changed over at once, next pass in %s", next)
	}
	s.mustAccept(k)
	s.pass(settle)
	s.keep(k)
	s.mustAccept(k)
	if sameLeaf(first, s.presented(k)) {
		t.Error("the old certificate is still presented")
	}
}

// The Secret is deleted under two running replicas: a new authority, which no
// bundle trusts at first.
func TestNewAuthorityChangesOverWithoutAGap(t *testing.T) {
	s := newStage(t, interceptor.Funcs{})
	a, b := s.keeper(), s.keeper()
	s.keep(a)
	s.keep(b)
	first := s.presented(a)
	s.deleteSecret()
	for range 2 * memory / settle {
		for _, k := range []*Keeper{a, b} {
			s.keep(k)
			s.mustAccept(a)
			s.mustAccept(b)
		}
		s.pass(settle)
	}
	if sameLeaf(first, s.presented(a)) || !sameLeaf(s.presented(a), s.presented(b)) {
		t.Error("the replicas did not change over to one new certificate")
	}
	for i, bundle := range s.bundles() {
		if len(bundle) != 1 {
			t.Errorf("bundle %d still holds %d authorities", i, len(bundle))
		}
	}
}

func TestUselessCertificateIsReplacedAtOnce(t *testing.T) {
	s := newStage(t, interceptor.Funcs{})
	k := s.keeper()
	s.keep(k)
	s.pass(400 * daylong) // asleep past the expiry
	s.keep(k)
	s.mustAccept(k)
}

func TestConflictIsTriedAgain(t *testing.T) {
	refused := false
	s := newStage(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if !refused {
				refused = true
				return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("edited meanwhile"))
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	k := s.keeper()
	if err := k.Begin(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.mustAccept(k)
}

func TestMissingConfigurationIsNoErrorButNotReady(t *testing.T) {
	s := newStage(t, interceptor.Funcs{})
	v := &admissionv1.ValidatingWebhookConfiguration{}
	v.Name = "v"
	if err := s.client.Delete(context.Background(), v); err != nil {
		t.Fatal(err)
	}
	k := s.keeper()
	s.keep(k)
	if err := k.Trusted(context.Background(), "unused"); err == nil || !strings.Contains(err.Error(), "configuration v not found; run: lockstep install") {
		t.Errorf("got %v", err)
	}
}

func TestTrustedCallsTheServerAsTheAPIServerWould(t *testing.T) {
	s := newStage(t, interceptor.Funcs{})
	s.clock.SetTime(time.Now()) // a handshake looks at the machine's clock
	k := s.keeper()
	if err := k.Trusted(context.Background(), "unused"); err == nil {
		t.Error("ready before the first pass")
	}
	s.keep(k)
	address := serve(t, k.GetCertificate)
	if err := k.Trusted(context.Background(), address); err != nil {
		t.Errorf("refused: %v", err)
	}
	stranger := s.keeper()
	stranger.presented = freshRing().serving.tls()
	if err := k.Trusted(context.Background(), serve(t, stranger.GetCertificate)); err == nil || !strings.Contains(err.Error(), "lws-webhook-service.lws-system.svc") {
		t.Errorf("accepted a stranger's certificate: %v", err)
	}
}

// serve completes handshakes until the test ends.
func serve(t *testing.T, get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: get})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func(c net.Conn) {
				_ = c.(*tls.Conn).Handshake() // the client judges it
				_ = c.Close()
			}(conn)
		}
	}()
	return l.Addr().String()
}

func TestFilesAreServedAndTheirAuthorityPublished(t *testing.T) {
	dir, ring := t.TempDir(), freshRing()
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewFiles(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("an empty directory: %v", err)
	}
	write("tls.crt", ring.serving.certPEM)
	write("tls.key", ring.serving.keyPEM)
	files, err := NewFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t, interceptor.Funcs{})
	k := s.keeperOf(files)
	s.keep(k)
	if bundle := s.bundles()[0]; len(bundle) > 0 {
		t.Errorf("without ca.crt the bundles are somebody else's, got %d certificates", len(bundle))
	}
	write("ca.crt", ring.authority.certPEM)
	s.keep(k)
	s.mustAccept(k)
}
