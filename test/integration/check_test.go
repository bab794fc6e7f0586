package integration

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/check"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/version"
	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const rolesCRD = "disaggregatedsets.disaggregatedset.x-k8s.io"

// checking checks installations of a cluster, as an administrator or another user.
type checking struct {
	*cluster
	user    string
	table   check.Table
	version string
	later   time.Duration
}

func (c *checking) lines() []check.Line {
	c.t.Helper()
	config := rest.CopyConfig(c.cfg)
	config.Impersonate.UserName = c.user
	server := expect.Value(discovery.NewDiscoveryClientForConfig(config))(c.t)
	return c.table.Run(c.t.Context(), check.Options{
		Client: c.as(c.user, nil), Discovery: server, TestNamespace: "default", Version: c.version, Now: time.Now().Add(c.later),
	})
}

// worst returns the worst result of each check, and all lines that are not ok.
func (c *checking) worst() (map[string]check.Result, string) {
	c.t.Helper()
	severity := map[check.Result]int{check.OK: 1, check.Warning: 2, check.Failure: 3}
	results, text := map[string]check.Result{}, ""
	for _, l := range c.lines() {
		if severity[l.Result] > severity[results[l.Check]] {
			results[l.Check] = l.Result
		}
		if l.Result != check.OK {
			text += string(l.Result) + " " + l.Check + ": " + l.Message + "\n"
		}
	}
	return results, text
}

// finds waits until a check has a result, and returns all that is not ok. Watches take a moment.
func (c *checking) finds(name string, want check.Result) string {
	c.t.Helper()
	text := ""
	c.until(name+" is "+string(want), func() bool {
		var results map[string]check.Result
		results, text = c.worst()
		return results[name] == want
	})
	return text
}

// allOK waits until no check finds anything.
func (c *checking) allOK() {
	c.t.Helper()
	c.eventually("all checks are ok", func() error {
		_, text := c.worst()
		return drill.Lacking("findings", "", text)
	})
}

// addWebhook adds a webhook that no installer wrote.
func (c *checking) addWebhook() {
	c.t.Helper()
	m := c.mutating()
	theirs := *m.Webhooks[0].DeepCopy()
	theirs.Name, theirs.ClientConfig.URL, theirs.FailurePolicy = "theirs.example.com", new("https://example.com"), new(admissionv1.Ignore)
	m.Webhooks = append([]admissionv1.MutatingWebhook{theirs}, m.Webhooks...)
	c.must(c.Update(c.t.Context(), m))
}

// patchAsTold patches the mutating configuration as kubectl would by the command in a text.
func (c *checking) patchAsTold(text string) {
	c.t.Helper()
	patch := regexp.MustCompile(`kubectl patch mutatingwebhookconfiguration\S+ --patch '(.*?)'`).FindStringSubmatch(text)
	expect.Must(c.t, patch != nil, "no command in:\n%s", text)
	c.must(c.Patch(c.t.Context(), c.mutating(), client.RawPatch(types.StrategicMergePatchType, []byte(patch[1]))))
}

// Each thing that check looks at is broken, seen, and mended by install.
func TestCheckSeesWhatIsBroken(t *testing.T) {
	c := &checking{cluster: newCluster(t), table: check.Installed, version: version.Get().Version}
	_, text := c.worst()
	expect.That(t, strings.Count(text, "failure") >= 5, "before install:\n%s", text)
	r := c.serving()
	c.allOK()

	for _, tt := range []struct {
		name, check string
		want        check.Result
		damage      func()
	}{
		{"the definition lacks a field", "definition", check.Failure, func() {
			c.editDefinition(func(spec, status map[string]apiextensionsv1.JSONSchemaProps) { delete(status, "restartsSince") })
		}},
		{"the definition of DisaggregatedSets lacks a field", "definition", check.Failure, func() {
			c.editDefinitionOf(rolesCRD, func(_, status map[string]apiextensionsv1.JSONSchemaProps) { delete(status, "roleStatuses") })
			expect.Says(c.t, c.finds("definition", check.Failure), rolesCRD+" lacks fields of this version: status.roleStatuses")
		}},
		{"a role may not read DisaggregatedSets", "roles", check.Failure, func() {
			role := &rbacv1.ClusterRole{}
			c.read(role, "", "lws-manager-role")
			role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "disaggregatedsets") })
			c.must(c.Update(t.Context(), role))
			expect.Says(c.t, c.finds("roles", check.Failure), "list disaggregatedsets.disaggregatedset.x-k8s.io")
		}},
		{"a webhook of DisaggregatedSets is gone", "webhooks", check.Warning, func() {
			v := c.validating()
			v.Webhooks = slices.DeleteFunc(v.Webhooks, func(hook admissionv1.ValidatingWebhook) bool { return hook.Name == "vdisaggregatedset.kb.io" })
			c.must(c.Update(t.Context(), v))
		}},
		{"a webhook configuration is deleted", "webhooks", check.Failure, func() { c.must(c.Delete(t.Context(), c.validating())) }},
		{"a webhook fails open", "webhooks", check.Warning, func() {
			m := c.mutating()
			m.Webhooks[0].FailurePolicy = new(admissionv1.Ignore)
			c.must(c.Update(t.Context(), m))
		}},
		{"another webhook is added", "webhooks", check.Failure, func() {
			c.addWebhook()
			text := c.finds("webhooks", check.Failure)
			if !strings.Contains(text, "has the webhook theirs.example.com") || strings.Contains(text, "has the webhook mpod") {
				c.t.Errorf("got:\n%s", text)
			}
			c.patchAsTold(text)
			c.allOK()
			c.addWebhook()
		}},
		{"a webhook calls elsewhere", "webhooks", check.Failure, func() {
			v := c.validating()
			v.Webhooks[0].ClientConfig.URL = new("https://example.com")
			c.must(c.Update(t.Context(), v))
			expect.Says(c.t, c.finds("webhooks", check.Failure), "has the webhook vleaderworkerset")
		}},
		{"the authority is deleted", "certificate", check.Failure, func() { c.must(c.Delete(t.Context(), c.secret(certs.AuthoritySecret))) }},
		{"the authority loses its key", "certificate", check.Failure, func() {
			secret := c.secret(certs.AuthoritySecret)
			delete(secret.Data, certs.AuthorityKey)
			c.must(c.Update(t.Context(), secret))
		}},
		{"a binding of a policy is deleted", "policies", check.Failure, func() {
			c.must(c.Delete(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "guard.protection.lockstep.dev"}}))
		}},
		{"a role loses a right", "roles", check.Failure, func() {
			role := &rbacv1.ClusterRole{}
			c.read(role, "", "lws-manager-role")
			role.Rules = role.Rules[1:]
			c.must(c.Update(t.Context(), role))
		}},
		{"a binding loses its subject", "roles", check.Failure, func() {
			binding := &rbacv1.ClusterRoleBinding{}
			c.read(binding, "", "lws-proxy-rolebinding")
			binding.Subjects = nil
			c.must(c.Update(t.Context(), binding))
		}},
	} {
		c.part(tt.name, func() {
			tt.damage()
			c.finds(tt.check, tt.want)
			c.install(r.called)
			c.allOK()
		})
	}
	c.part("a newer definition", func() {
		c.editDefinition(func(spec, _ map[string]apiextensionsv1.JSONSchemaProps) {
			spec["placement"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		})
		c.finds("definition", check.Warning)
		before := *c
		before.table = check.Before
		before.finds("definition", check.Failure)
		c.editDefinition(func(spec, _ map[string]apiextensionsv1.JSONSchemaProps) { delete(spec, "placement") })
	})
	c.part("a newer definition of DisaggregatedSets", func() {
		c.editDefinitionOf(rolesCRD, func(spec, _ map[string]apiextensionsv1.JSONSchemaProps) {
			spec["placement"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		})
		expect.Says(c.t, c.finds("definition", check.Warning), rolesCRD+" has fields that this version lacks: spec.placement")
		before := *c
		before.table = check.Before
		before.finds("definition", check.Failure)
		c.editDefinitionOf(rolesCRD, func(spec, _ map[string]apiextensionsv1.JSONSchemaProps) { delete(spec, "placement") })
	})
	c.part("what another implementation left", c.checkLeftovers)
	c.part("another version", func() {
		other := *c
		other.version = "v9.9.9+dirty"
		other.finds("version", check.Warning)
	})
	c.part("an authority that ends", func() {
		c.install(func(o *install.Options) { o.WebhookURL, o.DropOlder = r.webhookURL(), true })
		late := *c
		late.later = 3600 * 24 * time.Hour
		late.finds("certificate", check.Warning)
		late.later = 3700 * 24 * time.Hour
		late.finds("certificate", check.Failure)
	})
	c.part("a user without rights", func() {
		user := *c
		user.user = "nobody"
		results, text := user.worst()
		everyone := []string{"kubernetes", "leader", "version"} // the lease is open to all users
		for name, result := range results {
			expect.That(c.t, (result == check.OK) == slices.Contains(everyone, name), "%s is %s:\n%s", name, result, text)
		}
		expect.Says(c.t, text, "get clusterroles.rbac.authorization.k8s.io")
	})

	r.shut()
	c.part("no operator", func() {
		c.finds("leader", check.Failure)
		c.finds("admission", check.Failure)
	})
	c.part("a certificate that nothing trusts", func() {
		m := c.mutating()
		m.Webhooks[0].ClientConfig.CABundle = c.cfg.CAData
		c.must(c.Update(t.Context(), m))
		c.finds("certificate", check.Failure)
	})
	c.part("no CA bundle", func() {
		m := c.mutating()
		m.Webhooks[0].ClientConfig.CABundle = nil
		c.must(c.Update(t.Context(), m))
		c.finds("webhooks", check.Failure)
	})
	c.part("no pod behind the Service", func() {
		c.install(withImage)
		m := c.mutating()
		for i := range m.Webhooks {
			m.Webhooks[i].ClientConfig.CABundle = c.cfg.CAData
		}
		c.must(c.Update(t.Context(), m))
		expect.Says(c.t, c.finds("webhooks", check.Failure), "no ready endpoint")
	})
	c.part("a policy that was edited", func() { // its configuration is known now
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		c.read(policy, "", "guard.protection.lockstep.dev")
		policy.Spec.FailurePolicy = new(admissionv1.Ignore)
		policy.Spec.Validations = policy.Spec.Validations[:1]
		c.must(c.Update(t.Context(), policy))
		c.finds("policies", check.Warning)
	})
}

// editDefinition changes the properties of spec and status in the definition of sets.
func (c *cluster) editDefinition(edit func(spec, status map[string]apiextensionsv1.JSONSchemaProps)) {
	c.t.Helper()
	c.editDefinitionOf(crdName, edit)
}

func (c *cluster) editDefinitionOf(name string, edit func(spec, status map[string]apiextensionsv1.JSONSchemaProps)) {
	c.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	c.read(crd, "", name)
	all := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	edit(all["spec"].Properties, all["status"].Properties)
	c.must(c.Update(c.t.Context(), crd))
}

func (c *checking) checkLeftovers() {
	for _, left := range c.manifests("leftovers.yaml") {
		c.create(left)
		c.finds("leftovers", check.Warning)
		c.must(c.Delete(c.t.Context(), left))
		c.finds("leftovers", check.OK)
	}
	lease := c.leased("default")
	c.finds("leftovers", check.Failure)
	before := *c
	before.table = check.Before
	before.finds("leftovers", check.Failure)
	c.must(c.Delete(c.t.Context(), lease))
}

// leased creates the lease that another implementation holds in a namespace.
func (c *checking) leased(namespace string) *coordinationv1.Lease {
	c.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}}
	c.create(lease)
	c.lease(namespace, theirPod, 0)
	return lease
}

// Before an installation, check sees what install would refuse.
func TestCheckBeforeInstall(t *testing.T) {
	c := &checking{cluster: newCluster(t), table: check.Before}
	c.allOK()
	user := *c
	user.user = "ina"
	user.finds("rights", check.Failure)
	all := []string{"*"}
	c.grant("installers", []string{"ina"}, rbacv1.PolicyRule{APIGroups: all, Resources: all, Verbs: []string{"get", "list", "create", "update"}})
	user.finds("rights", check.Warning)
	c.grant("escalators", []string{"ina"}, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"escalate"}})
	user.finds("rights", check.OK)
	c.create(namespaced(systemName))
	c.leased(systemName) // install --image replaces it
	c.finds("leftovers", check.Warning)
}

// Without mutating policies, check says what is missing, and misses nothing else.
func TestCheckNamesMissingFeatures(t *testing.T) {
	c := &checking{cluster: older(t), table: check.Before}
	text := c.finds("features", check.Warning)
	expect.That(t, strings.Contains(text, "MutatingAdmissionPolicy") && strings.Contains(text, "maxUnavailable"),
		"got:\n%s", text)
	c.table = check.Installed
	c.install(protectOnly)
	if results, text := c.worst(); results["features"] != check.Warning || results["policies"] != check.OK || results["roles"] != check.OK || results["admission"] != check.OK {
		t.Errorf("got:\n%s", text)
	}
}

// The command ends with an error if a check fails, in every format.
func TestCheckCommand(t *testing.T) {
	c := newCluster(t)
	p := newPlugin(t, c.cfg, "default")
	for _, tt := range []struct {
		args string
		fail bool
		want string
	}{
		{"check --pre", false, "definition"},
		{"check", true, "docs/how-to/check-an-installation.md#roles"},
		{"check -o json", true, `"result": "failure"`},
		{"check --pre -o jsonpath={.failures}", false, "0"},
	} {
		out, _, err := p.run(t, "", strings.Fields(tt.args)...)
		expect.That(t, (err != nil) == tt.fail && strings.Contains(out, tt.want), "%s: %v\n%s", tt.args, err, out)
	}
}
