package integration

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/webhook"
)

func TestInstallIsRepeatableAndUninstallTakesAllAway(t *testing.T) {
	c := newCluster(t)

	first := c.install(nil)
	for _, want := range []string{
		"namespace/lws-system created\n",
		"customresourcedefinition.apiextensions.k8s.io/leaderworkersets.leaderworkerset.x-k8s.io created\n",
		"clusterrole.rbac.authorization.k8s.io/lws-manager-role created\n",
		"mutatingwebhookconfiguration.admissionregistration.k8s.io/lws-mutating-webhook-configuration created\n",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("the first run did not say %q:\n%s", want, first)
		}
	}
	if err := c.List(t.Context(), &lwsv1.LeaderWorkerSetList{}); err != nil {
		t.Errorf("install returned before the kind was served: %v", err)
	}

	before := c.mutating().ResourceVersion
	second := c.install(nil)
	if strings.Contains(second, " created") || strings.Contains(second, " configured") || !strings.Contains(second, "nothing had to be changed") {
		t.Errorf("the second run changed something:\n%s", second)
	}
	if after := c.mutating().ResourceVersion; after != before {
		t.Errorf("the second run wrote the webhook configuration: %s, %s", before, after)
	}

	c.mustKeepBundles()

	set := c.createSet("precious")
	c.install(nil)
	out, err := c.uninstall(nil)
	if err == nil || !strings.Contains(err.Error(), "default/precious") || !strings.Contains(err.Error(), "kubectl delete") || out != "" {
		t.Errorf("with a set: %v\n%s", err, out)
	}
	c.mutating()
	c.read(&corev1.ServiceAccount{}, systemName, "lws-controller-manager")

	c.must(c.Delete(t.Context(), set))
	c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemName, Name: "lws-webhook-server-cert"}})
	if out, err := c.uninstall(nil); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.absent(&apiextensionsv1.CustomResourceDefinition{}, crdName)
	c.absent(&corev1.Namespace{}, systemName)
	c.absent(&admissionv1.MutatingWebhookConfiguration{}, webhook.MutatingConfiguration)
	c.absent(&admissionv1.ValidatingWebhookConfiguration{}, webhook.ValidatingConfiguration)
	if out, err := c.uninstall(nil); err != nil || out != "nothing to remove\n" {
		t.Errorf("the second removal: %v\n%s", err, out)
	}
}

// mustKeepBundles injects a bundle as the operator does, and installs other addresses.
func (c *cluster) mustKeepBundles() {
	c.t.Helper()
	m := c.mutating()
	was := m.DeepCopy()
	for i := range m.Webhooks {
		m.Webhooks[i].ClientConfig.CABundle = testBundle(c)
	}
	c.must(c.Patch(c.t.Context(), m, client.StrategicMergeFrom(was), client.FieldOwner("lockstep")))
	for name, address := range map[string]string{"again": someURL, "with another URL": "https://127.0.0.1:10", "with the Service": ""} {
		c.install(func(o *install.Options) { o.WebhookURL = address })
		for _, hook := range c.mutating().Webhooks {
			if !bytes.Equal(hook.ClientConfig.CABundle, testBundle(c)) {
				c.t.Errorf("%s: the bundle of %s is lost", name, hook.Name)
			}
		}
	}
}

// testBundle returns the CA of the cluster.
func testBundle(c *cluster) []byte { return c.cfg.CAData }

func foreignDefinition(c *cluster) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: crdName},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "leaderworkerset.x-k8s.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "LeaderWorkerSet", Plural: "leaderworkersets", Categories: []string{"theirs"}},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Description: "theirs"}},
				}},
			}},
			Conversion: &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook: &apiextensionsv1.WebhookConversion{
					ConversionReviewVersions: []string{"v1"},
					ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: new(someURL), CABundle: testBundle(c)},
				},
			},
		},
	}
}

// A definition with fields that ours lacks stays, and so does everything else.
func TestInstallRefusesToReplaceANewerDefinition(t *testing.T) {
	c := newCluster(t)
	newer := foreignDefinition(c)
	newer.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"groupIdentity": {Type: "string"},
			"scheduling":    {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"policy": {Type: "string"}}},
		},
	}
	c.create(newer)
	for name, change := range map[string]func(*install.Options){
		"install": nil, "with an image": withImage,
	} {
		text := c.refused(func(o *install.Options) error { return install.Install(t.Context(), *o) }, change)
		for _, want := range []string{crdName, "spec.groupIdentity", "spec.scheduling\n", "spec.scheduling.policy", "nothing was installed"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not mention %q: %s", name, want, text)
			}
		}
	}
	live := &apiextensionsv1.CustomResourceDefinition{}
	c.read(live, "", crdName)
	if live.Generation != newer.Generation || len(live.Spec.Names.Categories) != 1 {
		t.Errorf("the definition changed: %+v", live.Spec.Names)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: systemName}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace was created: %v", err)
	}
	c.install(func(o *install.Options) { o.ProtectOnly = true })
}

func (c *cluster) mustHoldOwnDefinition() {
	c.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	c.read(crd, "", crdName)
	if crd.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter || crd.Spec.Conversion.Webhook != nil {
		c.t.Errorf("conversion is still %+v", crd.Spec.Conversion)
	}
	if spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]; spec.Description == "theirs" || len(spec.Properties) == 0 || len(crd.Spec.Names.Categories) > 0 {
		c.t.Error("fields of the other definition are still there")
	}
	if !slices.Contains(crd.Status.StoredVersions, "v1") {
		c.t.Errorf("stored versions are %q", crd.Status.StoredVersions)
	}
}
