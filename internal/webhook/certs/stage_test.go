package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	t      *testing.T
	client client.Client
	clock  *clocktesting.FakePassiveClock
}

func newStage(t *testing.T, f interceptor.Funcs) *stage {
	t.Helper()
	m := &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{Name: "a"}, {Name: "b"}}}
	v := &admissionv1.ValidatingWebhookConfiguration{Webhooks: []admissionv1.ValidatingWebhook{{Name: "c"}}}
	m.Name, v.Name = "m", "v"
	service := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "lws-system", Name: "lws-webhook-service"}}
	m.Webhooks[0].ClientConfig, m.Webhooks[1].ClientConfig = service, service
	v.Webhooks[0].ClientConfig.URL = new("https://127.0.0.1:9443/v")
	return &stage{
		t:      t,
		client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(m, v).WithInterceptorFuncs(f).Build(),
		clock:  clocktesting.NewFakePassiveClock(epoch),
	}
}

func (s *stage) keeper() *Keeper {
	return s.keeperOf(&SharedSecret{Client: s.client, Key: client.ObjectKey{Namespace: "lws-system", Name: "cert"}, Names: testNames, Log: logr.Discard()})
}

func (s *stage) keeperOf(source Source) *Keeper {
	return NewKeeper(Options{Source: source, Client: s.client, Clock: s.clock, Log: logr.Discard(), MutatingConfiguration: "m", ValidatingConfiguration: "v"})
}

func (s *stage) keep(k *Keeper) time.Duration {
	s.t.Helper()
	next, err := k.Keep(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return next
}

func (s *stage) pass(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func (s *stage) bundles() (all [][]*x509.Certificate) {
	s.t.Helper()
	for _, c := range []configuration{mutating("m"), validating("v")} {
		if err := s.client.Get(context.Background(), client.ObjectKeyFromObject(c.object), c.object); err != nil {
			s.t.Fatal(err)
		}
		for _, to := range c.clients() {
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

// mustAccept is the law of this package: at every moment every caller accepts
// what every replica presents.
func (s *stage) mustAccept(k *Keeper) {
	s.t.Helper()
	for i, bundle := range s.bundles() {
		if !trusts(bundle, s.presented(k), s.clock.Now()) {
			s.t.Fatalf("at %s caller %d refuses the server", s.clock.Now().Sub(epoch), i)
		}
	}
}

func (s *stage) deleteSecret() {
	s.t.Helper()
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = "lws-system", "cert"
	if err := s.client.Delete(context.Background(), secret); err != nil {
		s.t.Fatal(err)
	}
}
