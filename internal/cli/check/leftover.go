package check

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/lease"
)

// leftovers finds what another implementation left beside an installation of Lockstep.
func leftovers(ctx context.Context, s *site, f *findings) error {
	if s.ProtectOnly {
		f.ok("another implementation may run beside the protection of PVCs")
		return nil
	}
	s.others(ctx, f, func(holder lease.Holder) {
		f.fail("another implementation runs in namespace %q: %s holds the lease; stop it: %s", holder.Namespace, holder.Identity, holder.Stop())
	})
	config := install.Bare("v1", "ConfigMap", s.Namespace, install.OthersConfigMap)
	switch live, err := s.get(ctx, config); {
	case err != nil:
		f.take(err)
	case live != nil:
		f.warn("configmap %s in namespace %s configures another implementation, and is not read; delete it", config.GetName(), config.GetNamespace())
	}
	if !f.hasFound() {
		f.ok("nothing of another implementation is left")
	}
	return nil
}

// othersBefore finds another implementation that install would meet.
func othersBefore(ctx context.Context, s *site, f *findings) error {
	s.others(ctx, f, func(holder lease.Holder) {
		if holder.Namespace == s.Namespace && holder.Deployment() != "" {
			f.warn("another implementation runs in namespace %q as %s; install --image replaces its Deployment, any other install refuses", holder.Namespace, holder.Identity)
			return
		}
		f.fail("another implementation runs in namespace %q: %s holds the lease, and install refuses; stop it: %s", holder.Namespace, holder.Identity, holder.Stop())
	})
	if !f.hasFound() {
		f.ok("no other implementation is installed")
	}
	return nil
}

// others finds what runs, or is called, for sets besides Lockstep. Each kind that the user may not read
// is a finding of its own.
func (s *site) others(ctx context.Context, f *findings, runs func(lease.Holder)) {
	for _, find := range []func(context.Context, *findings) error{
		func(ctx context.Context, f *findings) error { return s.otherLeases(ctx, f, runs) },
		s.otherDeployments, s.otherWebhooks, s.otherDefinitions,
	} {
		f.take(find(ctx, f))
	}
}

// otherLeases finds leaders of other implementations, in all namespaces.
func (s *site) otherLeases(ctx context.Context, _ *findings, runs func(lease.Holder)) error {
	leases := &coordinationv1.LeaseList{}
	if err := s.Client.List(ctx, leases, client.MatchingFields{metav1.ObjectNameField: v1alpha1.DefaultResourceName}); err != nil {
		return err
	}
	for i := range leases.Items {
		if holder, isHeld := lease.HolderOf(&leases.Items[i], s.Now); isHeld && !holder.Ours() {
			runs(holder)
		}
	}
	return nil
}

// otherDeployments finds operators that do not run the program of Lockstep.
func (s *site) otherDeployments(ctx context.Context, f *findings) error {
	deployments := &appsv1.DeploymentList{}
	if err := s.Client.List(ctx, deployments, client.MatchingLabels{"control-plane": "controller-manager", "app.kubernetes.io/name": "lws"}); err != nil {
		return err
	}
	for _, d := range deployments.Items {
		isOurs := slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return len(c.Command) > 0 && c.Command[0] == install.Program
		})
		if !isOurs {
			f.warn("deployment %s in namespace %s is another implementation's, with %d replicas; delete it unless it is to be replaced", d.Name, d.Namespace, ptr.Deref(d.Spec.Replicas, 1))
		}
	}
	return nil
}

// otherWebhooks finds webhooks for sets besides those of the installation.
func (s *site) otherWebhooks(ctx context.Context, f *findings) error {
	for _, kind := range webhookKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := s.Client.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			u := &list.Items[i]
			if isAbout, err := isAboutSets(u); err != nil {
				return err
			} else if isAbout && !s.expects(u) {
				f.warn("%s is called for sets, and is not of this installation; delete it unless you know why it is there", title(u))
			}
		}
	}
	return nil
}

func isAboutSets(configuration *unstructured.Unstructured) (bool, error) {
	typed, err := typedWebhooks(configuration)
	return slices.ContainsFunc(typed.Webhooks, func(hook admissionv1.ValidatingWebhook) bool {
		return slices.ContainsFunc(hook.Rules, func(r admissionv1.RuleWithOperations) bool {
			return slices.Contains(r.APIGroups, lwsv1.GroupVersion.Group)
		})
	}), err
}

// expects reports whether an object is one of the installation.
func (s *site) expects(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(s.Objects, func(want *unstructured.Unstructured) bool { return title(want) == title(u) })
}

// disaggregated is a kind of another implementation that Lockstep does not serve.
const disaggregated = "disaggregatedsets.disaggregatedset.x-k8s.io"

func (s *site) otherDefinitions(ctx context.Context, f *findings) error {
	definition := install.Bare(apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition", "", disaggregated)
	live, err := s.get(ctx, definition)
	if err == nil && live != nil {
		f.warn("%s is defined, and no operator of Lockstep acts on such objects", disaggregated)
	}
	return err
}
