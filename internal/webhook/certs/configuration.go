package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/report"
)

// The names of the webhook configurations.
const (
	MutatingConfiguration   = "lws-mutating-webhook-configuration"
	ValidatingConfiguration = "lws-validating-webhook-configuration"
)

// Names are the names of the webhooks that installers write into the configurations.
func Names() []string {
	return []string{"mleaderworkerset.kb.io", "mpod.kb.io", "vleaderworkerset.kb.io", "vdisaggregatedset.kb.io"}
}

// callers is the API server as the webhook configurations describe it.
type callers struct {
	// hooks are webhooks that installers write. What anybody else adds says nothing about the operator.
	hooks []hook
	// missing is a configuration that does not exist or has none of them.
	missing string
}

// hook is one webhook of a configuration.
type hook struct {
	name string
	admissionv1.WebhookClientConfig
}

// configurations returns the webhook configurations that installers write.
func configurations() []client.Object {
	return []client.Object{
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: MutatingConfiguration}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ValidatingConfiguration}},
	}
}

func hooksOf(configuration client.Object) (all []hook) {
	switch c := configuration.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for _, w := range c.Webhooks {
			all = append(all, hook{w.Name, w.ClientConfig})
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for _, w := range c.Webhooks {
			all = append(all, hook{w.Name, w.ClientConfig})
		}
	}
	return all
}

// read returns what the configurations say, and reports the webhooks in them that no installer wrote.
func (k *Keeper) read(ctx context.Context) (found callers, err error) {
	for _, c := range configurations() {
		err := k.options.Client.Get(ctx, client.ObjectKeyFromObject(c), c)
		if client.IgnoreNotFound(err) != nil {
			return found, fmt.Errorf("read webhook configuration %q: %w", c.GetName(), err)
		}
		ours, foreign := 0, []string(nil)
		for _, to := range hooksOf(c) {
			isOurs := slices.Contains(Names(), to.name)
			if isOurs {
				ours, found.hooks = ours+1, append(found.hooks, to)
			}
			if !isOurs || !k.serves(hostOf(&to.WebhookClientConfig)) {
				foreign = append(foreign, to.name)
			}
		}
		if ours == 0 {
			found.missing = c.GetName()
		}
		report.ForeignWebhooks(c.GetName(), foreign)
	}
	return found, nil
}

// serves reports whether the certificate of the server has a host.
func (k *Keeper) serves(host string) bool {
	dir := k.options.Given
	if dir == "" {
		return slices.Contains(k.options.Hosts, host)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, corev1.TLSCertKey), filepath.Join(dir, corev1.TLSPrivateKeyKey))
	return err == nil && pair.Leaf.VerifyHostname(host) == nil
}

// distrust returns why the API server would not accept a certificate.
func (c callers) distrust(presented *tls.Certificate, now time.Time) error {
	if c.missing != "" {
		return fmt.Errorf("webhook configuration %s not found, or without webhooks of Lockstep; run: lockstep install", c.missing)
	}
	if presented == nil {
		return errors.New("the webhook server has no certificate")
	}
	for _, to := range c.hooks {
		host := hostOf(&to.WebhookClientConfig)
		if err := Verify(to.CABundle, presented.Leaf, host, now); err != nil {
			return fmt.Errorf("the API server, calling %q, would not accept the certificate of the webhook server: %w", host, err)
		}
	}
	return nil
}

// Verify returns why a TLS client with this bundle does not accept a certificate, under a name, or under any if it is
// empty.
func Verify(bundle []byte, presented *x509.Certificate, host string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := presented.Verify(x509.VerifyOptions{
		DNSName: host, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// Distrust returns why a TLS client with this bundle trusts none of some authorities at a time. If they are not known,
// it returns why no authority of the bundle is valid.
func Distrust(bundle []byte, authorities []*x509.Certificate, at time.Time) error {
	all, err := cert.ParseCertsPEM(bundle)
	if len(authorities) == 0 {
		authorities = all
	}
	for _, authority := range authorities {
		if err = Verify(bundle, authority, "", at); err == nil {
			return nil
		}
	}
	return err
}

// hostOf returns the name that the API server expects in the certificate.
func hostOf(to *admissionv1.WebhookClientConfig) string {
	if to.Service != nil {
		return to.Service.Name + "." + to.Service.Namespace + ".svc"
	}
	u, err := url.Parse(ptr.Deref(to.URL, ""))
	if err != nil {
		return ""
	}
	return u.Hostname()
}
