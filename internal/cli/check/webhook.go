package check

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
)

// webhooks finds webhook configurations that are missing or different, and Services without a pod.
func webhooks(ctx context.Context, s *site, f *findings) error {
	wanted := s.ofKinds(webhookKinds...)
	if len(wanted) == 0 {
		f.ok("this installation has no webhooks")
		return nil
	}
	found := s.present(ctx, f, wanted)
	s.compare(f, Warning, found)
	services := map[client.ObjectKey]bool{}
	for _, u := range found {
		hooks, err := hooksOf(u)
		if err != nil {
			return err
		}
		for _, hook := range hooks {
			if len(hook.CABundle) == 0 {
				f.fail("%s has no CA bundle, so no call to it succeeds; the operator, or cert-manager, writes it", title(u))
			}
			if to := hook.Service; to != nil {
				services[client.ObjectKey{Namespace: to.Namespace, Name: to.Name}] = true
			}
		}
	}
	for key := range services {
		if err := s.endpoints(ctx, f, key); err != nil {
			return err
		}
	}
	if !f.hasFound() {
		f.ok("all %d webhook configurations exist and have a CA bundle", len(wanted))
	}
	return nil
}

var webhookKinds = []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}

// hooksOf returns how the API server calls the webhooks of a configuration of either kind.
func hooksOf(configuration *unstructured.Unstructured) (all []admissionv1.WebhookClientConfig, err error) {
	typed, err := typedWebhooks(configuration)
	for _, hook := range typed.Webhooks {
		all = append(all, hook.ClientConfig)
	}
	return all, err
}

// typedWebhooks decodes a configuration of either kind: what is read of both has the same names.
func typedWebhooks(configuration *unstructured.Unstructured) (typed admissionv1.ValidatingWebhookConfiguration, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(configuration.Object, &typed)
	return typed, err
}

// endpoints finds a Service behind which no pod is ready.
func (s *site) endpoints(ctx context.Context, f *findings, key client.ObjectKey) error {
	err := s.Client.Get(ctx, key, &corev1.Service{})
	if apierrors.IsNotFound(err) {
		f.fail("service %s of the webhooks does not exist; run: %s", key, s.Command)
		return nil
	}
	if err != nil {
		return err
	}
	slices := &discoveryv1.EndpointSliceList{}
	if err := s.Client.List(ctx, slices, client.InNamespace(key.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: key.Name}); err != nil {
		return err
	}
	ready := 0
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				ready++
			}
		}
	}
	if ready == 0 {
		f.fail("service %s of the webhooks has no ready endpoint; see: kubectl -n %s get pods", key, key.Namespace)
	}
	return nil
}

// admission creates a set as a dry run, to see that the webhooks answer.
func admission(ctx context.Context, s *site, f *findings) error {
	if s.ProtectOnly {
		f.ok("this installation has no webhooks")
		return nil
	}
	err := s.Client.Create(ctx, s.dryRunSet(), client.DryRunAll)
	switch {
	case err == nil:
		f.ok("the webhooks answered when a set was created in namespace %s as a dry run", s.TestNamespace)
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		f.fail("the webhooks do not answer: %v", err)
	case meta.IsNoMatchError(err):
		f.fail("the API server does not serve LeaderWorkerSets; run: %s", s.Command)
	case apierrors.IsForbidden(err) && deniedRight.MatchString(err.Error()):
		return err
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		f.warn("not checked, because a dry run of a set in namespace %s was refused: %v", s.TestNamespace, err)
	default:
		return err
	}
	return nil
}

// dryRunSet returns the smallest set that is valid, without what a typed set would state.
func (s *site) dryRunSet() *unstructured.Unstructured {
	set := install.Bare(lwsv1.GroupVersion.String(), "LeaderWorkerSet", s.TestNamespace, "")
	set.SetGenerateName("lockstep-check-")
	container := map[string]any{"name": "check", "image": "check"}
	set.Object["spec"] = map[string]any{"leaderWorkerTemplate": map[string]any{
		"workerTemplate": map[string]any{"spec": map[string]any{"containers": []any{container}}},
	}}
	return set
}
