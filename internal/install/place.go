package install

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/webhook"
)

// place is where an operator runs, as the cluster shows it. The chart installs into any namespace.
type place struct {
	// namespace and account are those of its ServiceAccount. The account is empty where it is unknown.
	namespace, account string
	// byHelm reports whether Helm manages the installation.
	byHelm bool
}

// placeOf reads the place from the binding of protection's role or, without protection, from the
// Service of the webhooks. It is empty where neither exists.
func placeOf(ctx context.Context, c client.Reader) (p place, err error) {
	binding, err := Live(ctx, c, Bare(rbac, "ClusterRoleBinding", "", protectionBinding))
	if err != nil {
		return p, err
	}
	for _, subject := range subjectsOf(binding) {
		if s, _ := subject.(map[string]any); s["kind"] == "ServiceAccount" {
			p = placeBy(binding)
			p.namespace, _ = s["namespace"].(string)
			p.account, _ = s["name"].(string)
			return p, nil
		}
	}
	webhooks, err := Live(ctx, c, Bare(policies, "MutatingWebhookConfiguration", "", webhook.MutatingConfiguration))
	if err != nil || webhooks == nil {
		return p, err
	}
	for _, hook := range Webhooks(webhooks) {
		p = placeBy(webhooks)
		p.namespace, _, _ = unstructured.NestedString(hook, "clientConfig", "service", "namespace")
	}
	return p, nil
}

func subjectsOf(binding *unstructured.Unstructured) (subjects []any) {
	if binding != nil {
		subjects, _, _ = unstructured.NestedSlice(binding.Object, "subjects")
	}
	return subjects
}

func placeBy(u *unstructured.Unstructured) place {
	return place{byHelm: u.GetLabels()["app.kubernetes.io/managed-by"] == "Helm"}
}

// Namespaces returns where operators may run. With an error, they are those of install.
func Namespaces(ctx context.Context, c client.Reader) ([]string, error) {
	all := []string{v1alpha1.InstalledNamespace, v1alpha1.InstalledProtectionNamespace}
	p, err := placeOf(ctx, c)
	if p.namespace != "" && !slices.Contains(all, p.namespace) {
		all = append(all, p.namespace)
	}
	return all, err
}

// Lease names the lease that an operator of sets holds, as far as the client may read where it runs.
func Lease(ctx context.Context, c client.Reader) types.NamespacedName {
	p, _ := placeOf(ctx, c)
	return types.NamespacedName{Namespace: cmp.Or(p.namespace, namespaceName), Name: v1alpha1.DefaultResourceName}
}

// prefix is that of the names that the chart lets users choose.
func (p place) prefix() string {
	if prefix, found := strings.CutSuffix(p.account, "-controller-manager"); found {
		return prefix
	}
	return setsLabel
}
