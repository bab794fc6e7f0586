package check

import (
	"context"
	"crypto/x509"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/webhook/certs"
)

// soon is how early a certificate that ends is reported. The operator renews its own earlier.
const soon = 30 * 24 * time.Hour

// certificate finds CA bundles that trust no valid certificate and, where the user may read the
// Secret of the serving certificate, one that they do not trust.
func certificate(ctx context.Context, s *site, f *findings) error {
	serving, err := s.serving(ctx, f)
	if err != nil {
		return err
	}
	var ends time.Time
	for _, want := range s.ofKinds(webhookKinds...) {
		live, err := s.get(ctx, want)
		if err != nil || live == nil {
			return err
		}
		hooks, err := hooksOf(live)
		if err != nil {
			return err
		}
		for _, hook := range hooks {
			end, why := validUntil(hook, serving, s.Now)
			if why != "" {
				f.fail("%s: %s", title(live), why)
				return nil
			}
			if ends.IsZero() || end.Before(ends) {
				ends = end
			}
		}
	}
	days := int(ends.Sub(s.Now).Hours() / 24)
	switch {
	case ends.IsZero():
		f.ok("this installation has no webhooks")
	case ends.Before(s.Now.Add(soon)):
		f.warn("the webhook certificate ends in %d days, on %s, and was not renewed; see the operator's log", days, ends.UTC().Format(time.DateOnly))
	default:
		f.ok("the webhook certificate is valid for %d days, until %s", days, ends.UTC().Format(time.DateOnly))
	}
	return nil
}

// serving returns the certificate that the webhook server presents, or nil if it is not known.
func (s *site) serving(ctx context.Context, f *findings) ([]*x509.Certificate, error) {
	if len(s.ofKinds(webhookKinds...)) == 0 || !*s.Config.InternalCertManagement.Enable {
		return nil, nil // another program provides it
	}
	secret := &corev1.Secret{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: *s.Config.InternalCertManagement.WebhookSecretName}, secret)
	switch {
	case apierrors.IsForbidden(err): // the CA bundles can be checked
		f.take(err)
		return nil, nil
	case apierrors.IsNotFound(err): // cert-manager may keep it elsewhere
		return nil, nil
	case err != nil:
		return nil, err
	}
	chain, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	if err != nil {
		f.fail("secret %s has no certificate that can be read: %v", secret.Name, err)
	}
	return chain, nil
}

// validUntil returns when the API server stops to trust the webhook server, or why it does not now.
// Without a serving certificate, that is when the last authority of the bundle ends.
func validUntil(hook admissionv1.WebhookClientConfig, serving []*x509.Certificate, now time.Time) (ends time.Time, why string) {
	bundle, err := cert.ParseCertsPEM(hook.CABundle)
	if err != nil {
		return ends, "its CA bundle has no certificate"
	}
	if len(serving) > 0 {
		return serving[0].NotAfter, distrust(hook, bundle, serving, now)
	}
	for _, authority := range bundle {
		if authority.NotAfter.After(ends) {
			ends = authority.NotAfter
		}
	}
	if ends.Before(now) {
		return ends, "its CA bundle has expired"
	}
	return ends, ""
}

// distrust returns why the API server does not accept the serving certificate, or nothing.
func distrust(hook admissionv1.WebhookClientConfig, bundle, serving []*x509.Certificate, now time.Time) string {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, authority := range bundle {
		roots.AddCert(authority)
	}
	for _, link := range serving[1:] {
		between.AddCert(link)
	}
	_, err := serving[0].Verify(x509.VerifyOptions{
		DNSName: certs.HostOf(&hook), Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return "the API server does not accept the serving certificate: " + err.Error()
	}
	return ""
}
