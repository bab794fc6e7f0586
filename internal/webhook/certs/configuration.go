package certs

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configuration is one webhook configuration object, of either kind.
type configuration struct {
	object  client.Object
	clients func() []*admissionv1.WebhookClientConfig
}

func mutating(name string) configuration {
	o := &admissionv1.MutatingWebhookConfiguration{}
	o.Name = name
	return configuration{object: o, clients: func() []*admissionv1.WebhookClientConfig {
		return pointers(o.Webhooks, func(w *admissionv1.MutatingWebhook) *admissionv1.WebhookClientConfig { return &w.ClientConfig })
	}}
}

func validating(name string) configuration {
	o := &admissionv1.ValidatingWebhookConfiguration{}
	o.Name = name
	return configuration{object: o, clients: func() []*admissionv1.WebhookClientConfig {
		return pointers(o.Webhooks, func(w *admissionv1.ValidatingWebhook) *admissionv1.WebhookClientConfig { return &w.ClientConfig })
	}}
}

func pointers[W any](hooks []W, of func(*W) *admissionv1.WebhookClientConfig) []*admissionv1.WebhookClientConfig {
	all := make([]*admissionv1.WebhookClientConfig, len(hooks))
	for i := range hooks {
		all[i] = of(&hooks[i])
	}
	return all
}

// caller is the API server as one entry of a configuration describes it: under
// which name it calls the server, and whom it trusts.
type caller struct {
	host   string
	before []*x509.Certificate // as found
	after  []*x509.Certificate // as left
}

// publish makes every configuration trust ours, and returns who calls and which
// configurations are missing. A missing one is no error: it may come later, and
// its coming is watched.
func (k *Keeper) publish(ctx context.Context, now time.Time, ours []*x509.Certificate) (callers []caller, missing []string, err error) {
	for _, c := range k.configurations() {
		switch err := k.options.Client.Get(ctx, client.ObjectKeyFromObject(c.object), c.object); {
		case apierrors.IsNotFound(err):
			if c.object.GetName() != k.options.Further {
				missing = append(missing, c.object.GetName())
			}
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("read webhook configuration %q: %w", c.object.GetName(), err)
		}
		found, err := k.inject(ctx, now, c, ours)
		if err != nil {
			return nil, nil, fmt.Errorf("update the CA bundle of webhook configuration %q: %w", c.object.GetName(), err)
		}
		callers = append(callers, found...)
	}
	return callers, missing, nil
}

// configurations are those that have names.
func (k *Keeper) configurations() []configuration {
	all := []configuration{mutating(k.options.MutatingConfiguration), validating(k.options.ValidatingConfiguration), mutating(k.options.Further)}
	return slices.DeleteFunc(all, func(c configuration) bool { return c.object.GetName() == "" })
}

// inject merges ours into every bundle of one configuration. The write is a
// patch of the bundles alone, for the version that was read: whoever edits the
// rest at the same time neither loses nor overwrites anything.
func (k *Keeper) inject(ctx context.Context, now time.Time, c configuration, ours []*x509.Certificate) ([]caller, error) {
	was := c.object.DeepCopyObject().(client.Object)
	changed := false
	var callers []caller
	for _, to := range c.clients() {
		found := caller{host: hostOf(to), before: parseBundle(to.CABundle)}
		found.after = found.before
		if len(ours) > 0 {
			found.after = k.recall.merge(now, ours, found.before)
		}
		if !sameBundle(found.before, found.after) {
			to.CABundle = encodeBundle(found.after)
			changed = true
		}
		callers = append(callers, found)
	}
	if !changed {
		return callers, nil
	}
	if err := k.options.Client.Patch(ctx, c.object, client.StrategicMergeFrom(was, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, err
	}
	k.tellInjected(c.object)
	return callers, nil
}

func (k *Keeper) tellInjected(object client.Object) {
	k.options.Log.Info("updated a CA bundle", "configuration", object.GetName())
	if k.options.Events != nil {
		k.options.Events.Eventf(object, nil, corev1.EventTypeNormal, "CABundleUpdated", "UpdateCABundle",
			"the CA bundle did not trust the webhook server as it should; it does now")
	}
}

// hostOf is the name the API server expects in the certificate.
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
