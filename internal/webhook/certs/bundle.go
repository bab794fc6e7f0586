package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mostOlder bounds the authorities that a bundle keeps besides ours: replicas present the
// old certificate until each has seen the new one.
const mostOlder = 2

// caller is the API server as one webhook describes it: the name by which it calls the
// server, and the authorities that it trusts.
type caller struct {
	host          string
	before, after []*x509.Certificate
	// missing is the configuration that does not exist.
	missing string
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

// publish adds ours to each bundle, and returns all callers. The creation of a
// configuration that is missing is watched.
func (k *Keeper) publish(ctx context.Context, now time.Time, ours []*x509.Certificate) (callers []caller, err error) {
	for _, c := range k.options.configurations() {
		err := k.options.Client.Get(ctx, client.ObjectKeyFromObject(c), c)
		if apierrors.IsNotFound(err) {
			callers = append(callers, caller{missing: c.GetName()})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read webhook configuration %q: %w", c.GetName(), err)
		}
		found, err := k.inject(ctx, now, c, ours)
		if err != nil {
			return nil, fmt.Errorf("update the CA bundle of webhook configuration %q: %w", c.GetName(), err)
		}
		callers = append(callers, found...)
	}
	return callers, nil
}

// inject patches the bundles of one configuration, for the version that was read. It
// leaves alone what other clients change.
func (k *Keeper) inject(ctx context.Context, now time.Time, c client.Object, ours []*x509.Certificate) (callers []caller, err error) {
	was, changed := c.DeepCopyObject().(client.Object), false
	for _, to := range clientConfigs(c) {
		found := caller{host: hostOf(to), before: parseBundle(to.CABundle)}
		found.after = merge(now, ours, found.before)
		if !slices.EqualFunc(found.before, found.after, (*x509.Certificate).Equal) {
			if to.CABundle, err = cert.EncodeCertificates(found.after...); err != nil {
				return nil, err
			}
			changed = true
		}
		callers = append(callers, found)
	}
	if !changed {
		return callers, nil
	}
	if err := k.options.Client.Patch(ctx, c, client.StrategicMergeFrom(was, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, err
	}
	k.options.Log.Info("updated a CA bundle", "configuration", c.GetName())
	if k.options.Events != nil {
		k.options.Events.Eventf(c, nil, corev1.EventTypeNormal, "CABundleUpdated", "UpdateCABundle",
			"the CA bundle did not trust the webhook server; it does now")
	}
	return callers, nil
}

// merge returns ours, then the authorities of a bundle that are still valid.
func merge(now time.Time, ours, existing []*x509.Certificate) []*x509.Certificate {
	merged := slices.Clone(ours)
	for _, c := range existing {
		if !slices.ContainsFunc(merged, c.Equal) && !now.After(c.NotAfter) && len(merged) < len(ours)+mostOlder {
			merged = append(merged, c)
		}
	}
	return merged
}

// parseBundle returns the certificates that can be read: a bundle may hold a placeholder.
func parseBundle(bundle []byte) []*x509.Certificate {
	certs, _ := cert.ParseCertsPEM(bundle)
	return certs
}

// distrust returns why a caller would not accept the certificate.
func distrust(callers []caller, presented *tls.Certificate, now time.Time) error {
	for _, c := range callers {
		if c.missing != "" {
			return fmt.Errorf("webhook configuration %s not found; run: lockstep install", c.missing)
		}
		if !trusts(c.after, presented, c.host, now) {
			return fmt.Errorf("the API server, calling %q, would not accept the certificate of the webhook server", c.host)
		}
	}
	if len(callers) == 0 {
		return errors.New("the webhook configurations have no webhooks; run: lockstep install")
	}
	return nil
}

// trusts reports whether a TLS client with these authorities accepts the certificate under
// a name, or under any if it is empty. Without authorities, a client uses those of its
// machine, as the API server does for an empty bundle.
func trusts(authorities []*x509.Certificate, presented *tls.Certificate, host string, now time.Time) bool {
	o := x509.VerifyOptions{DNSName: host, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, der := range presented.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			o.Intermediates.AddCert(c)
		}
	}
	for _, c := range authorities {
		if o.Roots == nil {
			o.Roots = x509.NewCertPool()
		}
		o.Roots.AddCert(c)
	}
	_, err := presented.Leaf.Verify(o)
	return err == nil
}

// hostOf returns the name that the API server expects in the certificate.
func hostOf(to *admissionv1.WebhookClientConfig) string {
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
