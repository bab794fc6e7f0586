package integration

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"lockstep.dev/lockstep/internal/install"
)

// TestAPolicyBindsTheOperatorAlone removes a label of Pod Security as each account that may patch namespaces.
func TestAPolicyBindsTheOperatorAlone(t *testing.T) {
	const (
		account    = "system:serviceaccount:lws-system:lws-controller-manager"
		alone      = "system:serviceaccount:lockstep-system:lockstep-controller-manager"
		renamed    = "system:serviceaccount:elsewhere:serving"
		beside     = "system:serviceaccount:kube-system:lws-controller-manager"
		kubernetes = "system:serviceaccount:kube-system:namespace-controller"
		argo       = "system:serviceaccount:argocd:argocd-application-controller"
		installer  = "system:serviceaccount:ci:installer"
		other      = "system:serviceaccount:other:operator"
		all        = "*"
	)
	c := newCluster(t)
	patches := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"patch"}}
	runs := rbacv1.PolicyRule{APIGroups: []string{"lockstep.dev"}, Resources: []string{"operators"}, Verbs: []string{"run"}}
	deletes := rbacv1.PolicyRule{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingadmissionpolicies"}, Verbs: []string{"delete"}}
	c.grant("patchers", []string{account, alone, other, editor}, patches)
	c.grant("operators", []string{renamed, beside, kubernetes}, runs, patches)
	c.grant("installers", []string{installer}, runs, deletes, patches)
	c.grant("administrators", []string{argo}, rbacv1.PolicyRule{APIGroups: []string{all}, Resources: []string{all}, Verbs: []string{all}})
	victim := namespaced("victim")
	victim.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	c.create(victim)
	refusal := func(user string) string {
		err := c.patchAs(user, victim, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`, "")
		switch {
		case err == nil:
			c.must(c.patchAs(argo, victim, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`, ""))
			return ""
		case strings.Contains(err.Error(), "-operator-namespaces' with binding"):
			return "policy"
		}
		return err.Error()
	}
	bound := func(account string) {
		c.until("the policy is enforced", func() bool { return refusal(account) == "policy" })
		for user, want := range map[string]string{
			renamed: "policy", beside: "policy", kubernetes: "", argo: "", installer: "", other: "", editor: "",
		} {
			if got := refusal(user); got != want {
				t.Errorf("%s: got %q, want %q", user, got, want)
			}
		}
	}
	c.install(nil)
	bound(account)
	c.uninstall(nil)
	c.until("no policy is left", func() bool { return refusal(renamed) == "" })
	c.install(func(o *install.Options) { o.ProtectOnly = true })
	bound(alone)
	c.uninstall(nil)
	c.until("no policy of protection alone is left", func() bool { return refusal(renamed) == "" })
}
