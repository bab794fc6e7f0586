package check

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/cli/diff"
	"lockstep.dev/lockstep/internal/cli/probe"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

// webhookConfiguration is of either kind: what is read of both has the same names.
type webhookConfiguration = admissionv1.ValidatingWebhookConfiguration

var (
	mutatingKind   = admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration")
	validatingKind = admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")
	endpointKind   = discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")
	ofWebhooks     = client.MatchingLabels{discoveryv1.LabelServiceName: v1alpha1.DefaultWebhookServiceName}
)

// endpointsOfWebhooks reads them where the user may, in the namespace of the operator.
func endpointsOfWebhooks(ctx context.Context, r *reader) error {
	return list(endpointKind, ofWebhooks, client.InNamespace(r.Namespace))(ctx, r)
}

// webhook finds a configuration that is different, or with which no call succeeds.
func webhook(s *site, f *findings, want, live *object) {
	unlike(Warning)(s, f, want, live)
	for _, name := range foreign(want, live) { // helm upgrade would leave them
		f.fail("%s has the webhook %s, which install did not write: it sees each object that its rules select; to remove it: "+
			`kubectl patch %[1]s --patch '{"webhooks":[{"$patch":"delete","name":"%[2]s"}]}'; then run: %[3]s`, title(want), name, s.Command)
	}
	_, isRead := s.found[endpointKind.Kind]
	endpoints := found[discoveryv1.EndpointSlice](s, f, endpointKind.Kind)
	for _, hook := range as[webhookConfiguration](f, live).Webhooks {
		if len(hook.ClientConfig.CABundle) == 0 {
			f.fail("%s has no CA bundle, so no call to it succeeds; run: %s; cert-manager writes its own", title(want), s.Command)
		}
		if to := hook.ClientConfig.Service; to != nil && isRead && !anyReady(endpoints, to.Namespace) {
			f.fail("service %s/%s of the webhooks has no ready endpoint; see: kubectl -n %[1]s get pods", to.Namespace, to.Name)
		}
	}
}

// anyReady reports whether a pod in a namespace is ready.
func anyReady(all []discoveryv1.EndpointSlice, namespace string) bool {
	return slices.ContainsFunc(all, func(slice discoveryv1.EndpointSlice) bool {
		return slice.Namespace == namespace && slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
			return ptr.Deref(e.Conditions.Ready, true)
		})
	})
}

// dryRun creates a set as a dry run, to see that the webhooks answer.
func dryRun(ctx context.Context, r *reader) error {
	if !r.ProtectOnly {
		r.refusal = probe.Set(ctx, r.Client, r.TestNamespace)
	}
	return nil
}

// admission finds out whether the webhooks answer. What else refuses the set is no fault of theirs.
func admission(s *site, f *findings) {
	switch err := s.refusal; {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		f.warn("not checked, because a dry run of a set in namespace %s was refused: %v", s.testNamespace, err)
	case err != nil:
		f.fail("no set can be created: %v", err)
	case s.ProtectOnly:
		f.ok("this installation has no webhooks")
	default:
		f.ok("the webhooks answered when a set was created in namespace %s as a dry run", s.testNamespace)
	}
}

// foreign returns the webhooks of a configuration that install does not write, or that call elsewhere.
func foreign(want, live *object) (names []string) {
	for _, hook := range install.Webhooks(live) {
		isOurs := func(ours map[string]any) bool {
			return ours["name"] == hook["name"] && diff.Lacking(ours["clientConfig"], hook["clientConfig"]) == ""
		}
		if !slices.ContainsFunc(install.Webhooks(want), isOurs) {
			names = append(names, fmt.Sprint(hook["name"]))
		}
	}
	return names
}

// certificate finds an authority that signs nothing, and a configuration that does not trust it, or, if it is not known,
// any: now, or when it signs no certificate of full length any more. Cert-manager renews its own 30 days before the end.
func certificate(s *site, f *findings, want, live *object) {
	chain, soon := []*x509.Certificate(nil), s.now.AddDate(0, 0, 30)
	for _, secret := range found[corev1.Secret](s, f, "Secret") {
		pair, err := certs.ReadAuthority(secret.Data, s.now)
		if err != nil {
			f.fail("secret/%s cannot sign the certificate of the webhooks: %v; run: %s", certs.AuthoritySecret, err, s.Command)
			return
		}
		chain, soon = append(chain, pair.Leaf), s.now.Add(certs.ServingTerm)
		f.otherwise("the certificate authority of the webhooks is valid until %s", pair.Leaf.NotAfter.UTC().Format(time.DateOnly))
	}
	for _, hook := range as[webhookConfiguration](f, live).Webhooks {
		if err := certs.Distrust(hook.ClientConfig.CABundle, chain, s.now); err != nil {
			f.fail("%s: the API server does not trust the certificate authority: %v; run: %s", title(want), err, s.Command)
		} else if err := certs.Distrust(hook.ClientConfig.CABundle, chain, soon); err != nil {
			f.warn("%s: the certificate authority ends by %s: %v; run: %s", title(want), soon.UTC().Format(time.DateOnly), err, s.Command)
		}
	}
}
