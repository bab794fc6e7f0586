package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/keyutil"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

const (
	namespace = "lws-system"
	former    = "cert"
)

var (
	epoch     = time.Now()
	testHosts = ServiceHosts("lws-webhook-service", namespace, "10.0.0.7")
)

// stage is a cluster with the two webhook configurations, and a clock.
type stage struct {
	t      *testing.T
	client client.Client
	clock  *clocktesting.FakePassiveClock
	// refuses is the answer to reads of the authority.
	refuses error
}

func newStage(t *testing.T) *stage {
	t.Helper()
	m := &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{Name: Names()[0]}, {Name: Names()[1]}}}
	v := &admissionv1.ValidatingWebhookConfiguration{Webhooks: []admissionv1.ValidatingWebhook{{Name: Names()[2]}}}
	m.Name, v.Name = MutatingConfiguration, ValidatingConfiguration
	service := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace, Name: "lws-webhook-service"}, CABundle: []byte("\n")}
	m.Webhooks[0].ClientConfig, m.Webhooks[1].ClientConfig = service, service
	v.Webhooks[0].ClientConfig.URL = new("https://10.0.0.7:9443/v")
	s := &stage{t: t, clock: clocktesting.NewFakePassiveClock(epoch)}
	s.client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(m, v).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if key.Name == AuthoritySecret && s.refuses != nil {
				return s.refuses
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	return s
}

func (s *stage) keeper() *Keeper {
	return NewKeeper(Options{
		Namespace: namespace, Former: former, Hosts: testHosts, Client: s.client, Clock: s.clock, Log: logr.Discard(),
	})
}

// write writes a Secret, as an installer does.
func (s *stage) write(name string, data map[string][]byte) {
	s.t.Helper()
	secret := &corev1.Secret{Data: data}
	secret.Namespace, secret.Name = namespace, name
	err := s.client.Create(s.t.Context(), secret.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		err = s.client.Update(s.t.Context(), secret)
	}
	expect.OK(s.t, err)
}

// trust writes the bundle of every webhook, as an installer does.
func (s *stage) trust(bundle []byte) {
	s.t.Helper()
	m, v := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	s.get(MutatingConfiguration, m)
	s.get(ValidatingConfiguration, v)
	m.Webhooks[0].ClientConfig.CABundle, m.Webhooks[1].ClientConfig.CABundle = bundle, bundle
	v.Webhooks[0].ClientConfig.CABundle = bundle
	expect.OK(s.t, errors.Join(s.client.Update(s.t.Context(), m), s.client.Update(s.t.Context(), v)))
}

func (s *stage) get(name string, o client.Object) {
	s.t.Helper()
	expect.OK(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Name: name}, o))
}

// keep makes a pass after some time. Afterwards each caller accepts what the keeper presents.
func (s *stage) keep(k *Keeper, later time.Duration) time.Duration {
	s.t.Helper()
	s.clock.SetTime(s.clock.Now().Add(later))
	next := s.pass(k)
	expect.OKf(s.t, k.Trusted(), "after %s", s.clock.Now().Sub(epoch))
	return next
}

func (s *stage) pass(k *Keeper) time.Duration {
	s.t.Helper()
	return expect.Value(k.Keep(s.t.Context()))(s.t)
}

func (s *stage) presented(k *Keeper) *x509.Certificate {
	s.t.Helper()
	return expect.Value(k.GetCertificate(nil))(s.t).Leaf
}

func made(t *testing.T) map[string][]byte {
	t.Helper()
	return expect.Value(MakeAuthority(epoch))(t)
}

// earlier returns the Secret of an earlier version, whose certificate is its own authority.
func earlier(t *testing.T) map[string][]byte {
	t.Helper()
	c := expect.Value(signed(epoch, nil, &x509.Certificate{
		NotAfter: epoch.Add(365 * day), DNSNames: []string{"lws-webhook-service.lws-system.svc"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}))(t)
	key := expect.Value(keyutil.MarshalPrivateKeyToPEM(c.PrivateKey))(t)
	return map[string][]byte{AuthorityCert: PEM(c.Leaf), corev1.TLSCertKey: PEM(c.Leaf), corev1.TLSPrivateKeyKey: key}
}

// service makes every webhook call the Service, whose name the certificate of an earlier version has.
func (s *stage) service() {
	s.t.Helper()
	m, v := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	s.get(MutatingConfiguration, m)
	s.get(ValidatingConfiguration, v)
	v.Webhooks[0].ClientConfig = m.Webhooks[0].ClientConfig
	expect.OK(s.t, s.client.Update(s.t.Context(), v))
}

func TestEachReplicaSignsItsOwnCertificate(t *testing.T) {
	s, authority := newStage(t), made(t)
	s.write(AuthoritySecret, authority)
	s.trust(authority[AuthorityCert])
	a, b := s.keeper(), s.keeper()
	_, err := a.GetCertificate(nil)
	expect.That(t, err != nil, "a certificate is presented before the first pass")
	expect.Equalf(t, recheck, s.keep(a, 0), "next pass in")
	first := s.presented(a)
	s.keep(a, recheck)
	s.keep(b, 0)
	expect.That(t, s.presented(a).Equal(first) && !s.presented(b).Equal(first),
		"a replica signs at each pass, or two replicas have one certificate")
	for _, host := range testHosts {
		expect.OK(t, first.VerifyHostname(host))
	}
	expect.That(t, !first.IsCA && !first.NotAfter.After(epoch.Add(ServingTerm)),
		"the certificate signs others, or is valid until %s", first.NotAfter)
}

// A certificate is renewed before it ends, and every bundle trusts it at each moment.
func TestARenewalLeavesNoGap(t *testing.T) {
	s, authority := newStage(t), made(t)
	s.write(AuthoritySecret, authority)
	s.trust(authority[AuthorityCert])
	k := s.keeper()
	s.keep(k, 0)
	first := s.presented(k)
	s.keep(k, ServingTerm-renewBefore-day)
	expect.That(t, s.presented(k).Equal(first), "the certificate is renewed too early")
	for range 4 {
		s.keep(k, day)
	}
	expect.That(t, !s.presented(k).Equal(first), "the certificate is not renewed")
	// In the end it is valid as long as the authority, and is not signed again at each pass.
	for at := s.clock.Now(); at.Before(epoch.Add(authorityTerm - 25*day)); at = s.clock.Now() {
		s.keep(k, 20*day)
	}
	last := s.presented(k)
	if s.keep(k, recheck); !s.presented(k).Equal(last) || last.NotAfter.After(epoch.Add(authorityTerm)) {
		t.Errorf("the last certificate is signed again, or outlives its authority: %s", last.NotAfter)
	}
}

// Another authority is used after all bundles have trusted it for a while, whichever is written first.
func TestARotationLeavesNoGap(t *testing.T) {
	for name, isBundleFirst := range map[string]bool{"the bundle is written first": true, "the Secret is written first": false} {
		s, old, next := newStage(t), made(t), made(t)
		s.write(AuthoritySecret, old)
		s.trust(old[AuthorityCert])
		k := s.keeper()
		s.keep(k, 0)
		first := s.presented(k)
		steps := []func(){
			func() { s.write(AuthoritySecret, next) },
			func() { s.trust(Bundle(epoch, next[AuthorityCert], old[AuthorityCert])) },
		}
		if isBundleFirst {
			slices.Reverse(steps)
		}
		s.write(AuthoritySecret, nil)
		s.keep(k, recheck)
		for _, step := range steps {
			step()
			s.keep(k, time.Second)
		}
		left := s.keep(k, settle-2*time.Second)
		expect.That(t, left <= 2*time.Second && s.presented(k).Equal(first), "%s: too early, next pass in %s", name, left)
		s.keep(k, 3*time.Second)
		expect.That(t, !s.presented(k).Equal(first), "%s: the old certificate is still presented", name)
		s.trust(next[AuthorityCert])
		s.keep(k, 0)
	}
}

// Beside the roles, the Secret and the bundles of an earlier version, a replica presents that version's certificate.
func TestAnUpgradeLeavesNoGap(t *testing.T) {
	s, old, next := newStage(t), earlier(t), made(t)
	s.refuses = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, AuthoritySecret, nil)
	s.service()
	s.write(former, old)
	s.trust(old[AuthorityCert])
	k := s.keeper()
	s.keep(k, 0)
	first := s.presented(k)
	s.refuses = nil
	s.write(AuthoritySecret, next)
	s.keep(k, recheck)
	s.trust(Bundle(epoch, next[AuthorityCert], old[AuthorityCert]))
	s.keep(k, time.Second)
	restarted := s.keeper()
	s.keep(restarted, 0)
	expect.That(t, s.presented(k).Equal(first) && s.presented(restarted).Equal(first),
		"the authority's certificate is presented before each API server knows the bundle")
	s.keep(k, settle)
	s.keep(restarted, settle)
	expect.That(t, !s.presented(k).Equal(first) && !s.presented(restarted).Equal(first),
		"the earlier certificate is still presented")
}

func TestReadiness(t *testing.T) {
	s := newStage(t)
	k := s.keeper()
	mustSay := func(wants ...string) {
		t.Helper()
		for _, want := range wants {
			expect.ErrorSays(t, k.Trusted(), want)
		}
	}
	mustSay("not been read")
	expect.Equalf(t, settle, s.pass(k), "without an authority, the next pass is in")
	mustSay("no certificate", AuthoritySecret, "lockstep install")
	authority := made(t)
	s.write(AuthoritySecret, authority)
	s.pass(k)
	mustSay("would not accept")
	s.trust(authority[AuthorityCert])
	s.keep(k, 0)

	v := &admissionv1.ValidatingWebhookConfiguration{}
	s.get(ValidatingConfiguration, v)
	v.Webhooks[0].ClientConfig.URL = new("https://elsewhere.example.com")
	expect.OK(t, s.client.Update(t.Context(), v))
	s.pass(k)
	mustSay("elsewhere.example.com")
	expect.OK(t, s.client.Delete(t.Context(), v))
	s.pass(k)
	mustSay("lockstep install")
}

// A read that fails for another reason than a missing Secret or right keeps what is presented.
func TestAnAPIServerThatFailsChangesNothing(t *testing.T) {
	s, authority := newStage(t), made(t)
	s.write(AuthoritySecret, authority)
	s.trust(authority[AuthorityCert])
	k := s.keeper()
	s.keep(k, 0)
	first := s.presented(k)
	s.refuses = errors.New("busy")
	_, err := k.Keep(t.Context())
	expect.That(t, err != nil && k.Trusted() == nil && s.presented(k).Equal(first), "%v, distrust %v", err, k.Trusted())
}

// A webhook is foreign by its name, or by where it calls.
func TestForeignWebhooksAreCounted(t *testing.T) {
	s := newStage(t)
	s.pass(s.keeper())
	m := &admissionv1.MutatingWebhookConfiguration{}
	s.get(MutatingConfiguration, m)
	m.Webhooks[1].ClientConfig.Service.Namespace = "elsewhere"
	theirs := *m.Webhooks[0].DeepCopy()
	theirs.Name = "theirs"
	m.Webhooks = append(m.Webhooks, theirs)
	expect.OK(t, s.client.Update(t.Context(), m))
	s.pass(s.keeper())
	got := fakeapi.Metrics(t, report.CertificateMetrics(func() (time.Time, error) { return time.Time{}, errors.New("none") })...)
	expect.Equal(t, map[string]float64{"foreign_webhooks " + MutatingConfiguration + " " + Names()[1]: 1, "foreign_webhooks " + MutatingConfiguration + " theirs": 1}, got)
}

// A webhook that someone else added does not make a replica unready, nor keep a certificate of another authority.
func TestAForeignWebhookChangesNoCertificate(t *testing.T) {
	s, old, next := newStage(t), made(t), made(t)
	s.write(AuthoritySecret, old)
	s.trust(old[AuthorityCert])
	k := s.keeper()
	s.keep(k, 0)
	first := s.presented(k)
	v := &admissionv1.ValidatingWebhookConfiguration{}
	s.get(ValidatingConfiguration, v)
	theirs := *v.Webhooks[0].DeepCopy()
	theirs.Name, theirs.ClientConfig.CABundle = "theirs", made(t)[AuthorityCert]
	v.Webhooks = append(v.Webhooks, theirs)
	expect.OK(t, s.client.Update(t.Context(), v))
	s.keep(k, recheck)
	s.keep(s.keeper(), 0)
	s.write(AuthoritySecret, next)
	s.trust(Bundle(epoch, next[AuthorityCert], old[AuthorityCert]))
	s.keep(k, recheck)
	s.keep(k, settle)
	expect.That(t, !s.presented(k).Equal(first), "the certificate of the next authority is not presented")
	s.get(ValidatingConfiguration, v)
	v.Webhooks = v.Webhooks[1:]
	expect.OK(t, s.client.Update(t.Context(), v))
	s.pass(k)
	expect.That(t, k.Trusted() != nil, "a configuration without webhooks of an installer is trusted")
}

func TestABundleKeepsOlderAuthorities(t *testing.T) {
	authority := func() []byte { return made(t)[AuthorityCert] }
	ours, old, older, oldest := authority(), authority(), authority(), authority()
	for name, tt := range map[string]struct {
		now          time.Time
		before, want []byte
	}{
		"none":          {epoch, nil, ours},
		"a placeholder": {epoch, []byte("\n"), ours},
		"the same":      {epoch, ours, ours},
		"twice":         {epoch, slices.Concat(old, ours), slices.Concat(ours, old)},
		"two":           {epoch, slices.Concat(old, older), slices.Concat(ours, old, older)},
		"bounded":       {epoch, slices.Concat(old, older, oldest), slices.Concat(ours, old, older)},
		"expired":       {epoch.Add(authorityTerm + day), old, ours},
	} {
		expect.Equalf(t, string(tt.want), string(Bundle(tt.now, ours, tt.before)), "%s", name)
	}
}

func TestAnAuthorityIsRead(t *testing.T) {
	data, other, leaf := made(t), made(t), earlier(t)
	for name, tt := range map[string]struct {
		at       time.Time
		crt, key []byte
		want     string
	}{
		"fit":              {epoch, data[AuthorityCert], data[AuthorityKey], ""},
		"empty":            {epoch, nil, nil, "ca.crt"},
		"unreadable":       {epoch, []byte("x"), data[AuthorityKey], "ca.crt"},
		"no key":           {epoch, data[AuthorityCert], nil, "ca.key"},
		"the key of other": {epoch, data[AuthorityCert], other[AuthorityKey], "ca.key"},
		"no authority":     {epoch, leaf[corev1.TLSCertKey], leaf[corev1.TLSPrivateKeyKey], "no authority"},
		"expired":          {epoch.Add(authorityTerm + day), data[AuthorityCert], data[AuthorityKey], "valid from"},
		"of the future":    {epoch.Add(-day), data[AuthorityCert], data[AuthorityKey], "valid from"},
	} {
		_, fault := ReadAuthority(map[string][]byte{AuthorityCert: tt.crt, AuthorityKey: tt.key}, tt.at)
		expect.That(t, (fault == nil) == (tt.want == "") && (fault == nil || strings.Contains(fault.Error(), tt.want)),
			"%s: got %v, want %q", name, fault, tt.want)
	}
}

// Install replaces its own authority in its last year, and never one of a user.
func TestOnlyOurAuthorityIsDue(t *testing.T) {
	ours := expect.Value(ReadAuthority(made(t), epoch))(t)
	theirs, err := signed(epoch, nil, &x509.Certificate{NotAfter: epoch.Add(30 * day), IsCA: true, KeyUsage: x509.KeyUsageCertSign})
	expect.OK(t, err)
	expect.That(t, !IsDue(ours.Leaf, epoch.AddDate(8, 11, 0)) && !IsDue(theirs.Leaf, epoch), "due early, or not ours")
	expect.That(t, IsDue(ours.Leaf, epoch.AddDate(9, 1, 0)), "it is not due in its last year")
}

// What the authority signs cannot sign: a chain of two is refused.
func TestACertificateOfTheAuthoritySignsNoOther(t *testing.T) {
	authority := expect.Value(ReadAuthority(made(t), epoch))(t)
	between, err := signed(epoch, authority, &x509.Certificate{NotAfter: epoch.Add(day), IsCA: true, KeyUsage: x509.KeyUsageCertSign})
	expect.OK(t, err)
	leaf := expect.Value(serving(epoch, between, []string{"h", "0.0.0.0", ""}))(t)
	roots, links := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(authority.Leaf)
	links.AddCert(between.Leaf)
	_, err = leaf.Leaf.Verify(x509.VerifyOptions{DNSName: "h", Roots: roots, Intermediates: links, CurrentTime: epoch})
	expect.That(t, err != nil, "a certificate between the authority and the server is accepted")
	expect.That(t, leaf.Leaf.VerifyHostname("0.0.0.0") != nil, "the unspecified address names no host")
}
