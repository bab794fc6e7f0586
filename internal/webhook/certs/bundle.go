package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// callers is the API server as the webhook configurations describe it.
type callers struct {
	// hosts are the names by which the API server calls the server.
	hosts []string
	// missing is a configuration that does not exist or has no webhooks.
	missing string
	// changed reports whether a bundle was written.
	changed bool
}

// configurations returns the webhook configurations whose bundles are kept.
func (o Options) configurations() []client.Object {
	return []client.Object{
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.MutatingConfiguration}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.ValidatingConfiguration}},
	}
}

func clientConfigs(configuration client.Object) (all []*admissionv1.WebhookClientConfig) {
	switch c := configuration.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, &c.Webhooks[i].ClientConfig)
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, &c.Webhooks[i].ClientConfig)
		}
	}
	return all
}

// publish makes the bundle that of every webhook. The creation of a configuration that is
// missing is watched.
func (k *Keeper) publish(ctx context.Context, bundle []byte) (found callers, err error) {
	for _, c := range k.options.configurations() {
		err := k.options.Client.Get(ctx, client.ObjectKeyFromObject(c), c)
		if client.IgnoreNotFound(err) != nil {
			return found, fmt.Errorf("read webhook configuration %q: %w", c.GetName(), err)
		}
		hooks, was := clientConfigs(c), c.DeepCopyObject().(client.Object)
		if len(hooks) == 0 {
			found.missing = c.GetName()
		}
		isStale := false
		for _, to := range hooks {
			found.hosts = append(found.hosts, HostOf(to))
			isStale = isStale || !bytes.Equal(to.CABundle, bundle)
			to.CABundle = bundle
		}
		if !isStale {
			continue
		}
		if err := k.options.Client.Patch(ctx, c, client.StrategicMergeFrom(was, client.MergeFromWithOptimisticLock{})); err != nil {
			return found, fmt.Errorf("update the CA bundle of webhook configuration %q: %w", c.GetName(), err)
		}
		found.changed = true
		k.options.Log.Info("updated a CA bundle", "configuration", c.GetName())
		if k.options.Events != nil {
			k.options.Events.Eventf(c, nil, corev1.EventTypeNormal, "CABundleUpdated", "UpdateCABundle",
				"the CA bundle did not trust the webhook server; it does now")
		}
	}
	return found, nil
}

// distrust returns why the API server would not accept the certificate.
func (c callers) distrust(bundle []byte, presented *tls.Certificate, now time.Time) error {
	if c.missing != "" {
		return fmt.Errorf("webhook configuration %s not found, or without webhooks; run: lockstep install", c.missing)
	}
	for _, host := range c.hosts {
		if !trusts(bundle, presented, host, now) {
			return fmt.Errorf("the API server, calling %q, would not accept the certificate of the webhook server", host)
		}
	}
	return nil
}

// trusts reports whether a TLS client with this bundle accepts the certificate under a name,
// or under any if it is empty.
func trusts(bundle []byte, presented *tls.Certificate, host string, now time.Time) bool {
	return Verify(bundle, []*x509.Certificate{presented.Leaf}, host, now) == nil
}

// Verify returns why a TLS client with this bundle does not accept a serving certificate and those
// between it and its authority.
func Verify(bundle []byte, chain []*x509.Certificate, host string, now time.Time) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, link := range chain[1:] {
		between.AddCert(link)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName: host, Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// HostOf returns the name that the API server expects in the certificate.
func HostOf(to *admissionv1.WebhookClientConfig) string {
	if to.Service != nil {
		return to.Service.Name + "." + to.Service.Namespace + ".svc"
	}
	if to.URL == nil {
		return ""
	}
	u, err := url.Parse(*to.URL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
