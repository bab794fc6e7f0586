// Package place finds where an operator runs, as the cluster shows it: the chart installs into any namespace. It
// refuses to know what is installed there.
package place

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

// ProtectionBinding binds the role of protection to the ServiceAccount of the operator.
const ProtectionBinding = "lockstep-protection-rolebinding"

// Place is where an operator runs.
type Place struct {
	// Namespace and Account are those of its ServiceAccount. The account is empty where it is unknown.
	Namespace, Account string
	// ByHelm reports whether Helm manages the installation.
	ByHelm bool
}

// Of reads the place from the binding of protection's role or, without protection, from the
// Service of the webhooks. It is empty where neither exists.
func Of(ctx context.Context, c client.Reader) (p Place, err error) {
	binding := &rbacv1.ClusterRoleBinding{}
	if err := c.Get(ctx, types.NamespacedName{Name: ProtectionBinding}, binding); client.IgnoreNotFound(err) != nil {
		return p, fmt.Errorf("read clusterrolebinding %q: %w", ProtectionBinding, err)
	}
	for _, subject := range binding.Subjects {
		if subject.Kind == rbacv1.ServiceAccountKind {
			return Place{subject.Namespace, subject.Name, byHelm(binding)}, nil
		}
	}
	webhooks := &admissionv1.MutatingWebhookConfiguration{}
	if err := c.Get(ctx, types.NamespacedName{Name: certs.MutatingConfiguration}, webhooks); client.IgnoreNotFound(err) != nil {
		return p, fmt.Errorf("read webhook configuration %q: %w", certs.MutatingConfiguration, err)
	}
	for _, hook := range webhooks.Webhooks {
		if service := hook.ClientConfig.Service; service != nil {
			p.Namespace = service.Namespace
		}
	}
	p.ByHelm = byHelm(webhooks)
	return p, nil
}

func byHelm(o metav1.Object) bool { return o.GetLabels()["app.kubernetes.io/managed-by"] == "Helm" }

// Namespaces returns where operators may run. With an error, they are those of install.
func Namespaces(ctx context.Context, c client.Reader) ([]string, error) {
	all := []string{v1alpha1.InstalledNamespace, v1alpha1.InstalledProtectionNamespace}
	p, err := Of(ctx, c)
	if p.Namespace != "" && !slices.Contains(all, p.Namespace) {
		all = append(all, p.Namespace)
	}
	return all, err
}

// Lease names the lease that an operator of sets holds, as far as the client may read where it runs.
func Lease(ctx context.Context, c client.Reader) types.NamespacedName {
	p, _ := Of(ctx, c)
	return types.NamespacedName{Namespace: cmp.Or(p.Namespace, v1alpha1.InstalledNamespace), Name: v1alpha1.DefaultResourceName}
}
