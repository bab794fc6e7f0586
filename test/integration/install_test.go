package integration

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/expect"
)

func protectOnly(o *install.Options) { o.ProtectOnly = true }

func TestInstallIsRepeatableAndUninstallRemovesAll(t *testing.T) {
	c := newCluster(t)

	first := c.install(nil)
	for _, want := range []string{
		"namespace/lws-system created\n",
		"customresourcedefinition.apiextensions.k8s.io/leaderworkersets.leaderworkerset.x-k8s.io created\n",
		"customresourcedefinition.apiextensions.k8s.io/disaggregatedsets.disaggregatedset.x-k8s.io created\n",
		"customresourcedefinition.apiextensions.k8s.io/disaggregatedsetrolescalers.disaggregatedset.x-k8s.io created\n",
		"clusterrole.rbac.authorization.k8s.io/lws-manager-role created\n",
		"mutatingwebhookconfiguration.admissionregistration.k8s.io/lws-mutating-webhook-configuration created\n",
	} {
		expect.Says(t, first, want)
	}
	if err := c.List(t.Context(), &lwsv1.LeaderWorkerSetList{}); err != nil {
		t.Errorf("the kind is not served after install: %v", err)
	}

	before := c.mutating().ResourceVersion
	c.installAgain(nil)
	expect.Equalf(t, before, c.mutating().ResourceVersion, "the second install wrote the webhook configuration")

	c.mustKeepBundles()

	set := c.createSet("precious")
	c.install(nil)
	out, err := c.act(install.Uninstall, nil)
	if err == nil || !strings.Contains(err.Error(), "default/precious") || !strings.Contains(err.Error(), "kubectl delete") || out != "" {
		t.Errorf("with a set: %v\n%s", err, out)
	}
	c.mutating()
	c.read(&corev1.ServiceAccount{}, systemName, "lws-controller-manager")

	c.must(c.Delete(t.Context(), set))
	c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemName, Name: "lws-webhook-server-cert"}})
	c.uninstall(nil)
	for _, name := range []string{crdName, "disaggregatedsets.disaggregatedset.x-k8s.io", "disaggregatedsetrolescalers.disaggregatedset.x-k8s.io"} {
		c.absent(&apiextensionsv1.CustomResourceDefinition{}, name)
	}
	c.absent(&corev1.Namespace{}, systemName)
	c.absent(&admissionv1.MutatingWebhookConfiguration{}, certs.MutatingConfiguration)
	c.absent(&admissionv1.ValidatingWebhookConfiguration{}, certs.ValidatingConfiguration)
	expect.Equalf(t, "nothing to remove\n", c.uninstall(nil), "the second removal")
}

// mustKeepBundles adds a bundle as an earlier operator did, and installs other addresses. The end of a rotation drops it.
func (c *cluster) mustKeepBundles() {
	c.t.Helper()
	m := c.mutating()
	was := m.DeepCopy()
	for i := range m.Webhooks {
		m.Webhooks[i].ClientConfig.CABundle = c.cfg.CAData
	}
	c.must(c.Patch(c.t.Context(), m, client.StrategicMergeFrom(was), client.FieldOwner("lockstep")))
	for name, address := range map[string]string{"again": someURL, "with another URL": "https://127.0.0.1:10", "with the Service": ""} {
		c.install(func(o *install.Options) { o.WebhookURL = address })
		for _, hook := range c.mutating().Webhooks {
			if own := bytes.Equal(hook.ClientConfig.CABundle, c.cfg.CAData); own || !bytes.Contains(hook.ClientConfig.CABundle, c.cfg.CAData) {
				c.t.Errorf("%s: %s lost its bundle, or has no authority", name, hook.Name)
			}
		}
	}
	c.install(func(o *install.Options) { o.DropOlder = true })
	authority := c.secret(certs.AuthoritySecret).Data[certs.AuthorityCert]
	for _, hook := range c.mutating().Webhooks {
		expect.That(c.t, bytes.Equal(hook.ClientConfig.CABundle, authority), "%s trusts more than the authority", hook.Name)
	}
}

// foreignDefinition is the definition of another implementation.
func (c *cluster) foreignDefinition() *apiextensionsv1.CustomResourceDefinition {
	c.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	c.must(runtime.DefaultUnstructuredConverter.FromUnstructured(c.manifests("definition.yaml")[0].(*unstructured.Unstructured).Object, crd))
	return crd
}

// Install keeps a definition with fields that the bundled one lacks, and changes nothing else.
func TestInstallRefusesToReplaceANewerDefinition(t *testing.T) {
	c := newCluster(t)
	newer := c.foreignDefinition()
	newer.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"placement": {Type: "string"},
			"forecast":  {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"policy": {Type: "string"}}},
		},
	}
	c.create(newer)
	for _, change := range []func(*install.Options){nil, withImage} {
		c.refused(install.Install, change, crdName, "spec.placement", "spec.forecast\n", "nothing was installed")
	}
	live := &apiextensionsv1.CustomResourceDefinition{}
	c.read(live, "", crdName)
	expect.That(t, live.Generation == newer.Generation && len(live.Spec.Names.Categories) == 1,
		"the definition changed: %+v", live.Spec.Names)
	c.absent(&corev1.Namespace{}, systemName)
	c.install(protectOnly)
}

func (c *cluster) mustHoldOwnDefinition() {
	c.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	c.read(crd, "", crdName)
	expect.That(c.t, crd.Spec.Conversion.Strategy == apiextensionsv1.NoneConverter && crd.Spec.Conversion.Webhook == nil,
		"conversion is still %+v", crd.Spec.Conversion)
	if spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]; spec.Description == "theirs" || len(spec.Properties) == 0 || len(crd.Spec.Names.Categories) > 0 {
		c.t.Error("fields of the other definition are still there")
	}
	expect.That(c.t, slices.Contains(crd.Status.StoredVersions, "v1"), "stored versions are %q", crd.Status.StoredVersions)
}

const (
	editor      = "edgar"
	nodeAgent   = "system:node:n1"
	operatorsID = "system:serviceaccount:lws-system:lws-controller-manager"
	stsID       = "system:serviceaccount:kube-system:statefulset-controller"
	gcID        = "system:serviceaccount:kube-system:generic-garbage-collector"
	sharedID    = "system:kube-controller-manager"
)

// Only the operator and Kubernetes itself may change labels and controllers of owned objects.
func TestLabelsOfOwnedObjectsAreProtected(t *testing.T) {
	c := newCluster(t)
	all := []string{"*"}
	c.grant("writers", []string{editor, nodeAgent, stsID, gcID, sharedID}, rbacv1.PolicyRule{APIGroups: []string{"apps", ""}, Resources: all, Verbs: all})
	objects := c.manifests("owned.yaml") // one of each kind that a set owns, and a pod without an owner
	for _, object := range objects {     // before the webhook for pods
		c.create(object)
	}
	c.install(nil)
	pod, sts, service, revision, free := objects[0], objects[1], objects[2], objects[3], objects[4]
	c.awaitLabelPolicy(pod)

	label := func(key, value string) string {
		return fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)
	}
	const index, name = "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/name"
	const other = `{"apiVersion":"apps/v1","kind":"StatefulSet","name":"x","uid":"other"`
	const own = `{"apiVersion":"leaderworkerset.x-k8s.io/v1","kind":"LeaderWorkerSet","name":"a","uid":"u","controller":true}`
	const (
		handOver = `{"metadata":{"ownerReferences":[` + other + `,"controller":true}]}}`
		addOwner = `{"metadata":{"ownerReferences":[` + other + `},` + own + `]}}`
		orphan   = `{"metadata":{"ownerReferences":null}}`
	)
	for _, tt := range []struct {
		name, user, patch, subresource string
		object                         client.Object
		refused                        bool
	}{
		{"a user changes a label of a pod", editor, label(index, `"7"`), "", pod, true},
		{"a user removes the name label of a pod", editor, label(name, "null"), "", pod, true},
		{"a user adds a label of the reserved domain", editor, label("leaderworkerset.sigs.k8s.io/x", `"7"`), "", pod, true},
		{"a user changes a label through the status", editor, label(index, `"7"`), "status", pod, true},
		{"a user changes another label", editor, label("team", `"a"`), "", pod, false},
		{"a user adds an annotation", editor, `{"metadata":{"annotations":{"a":"b"}}}`, "", pod, false},
		{"a user replaces the controller", editor, handOver, "", pod, true},
		{"a user removes the controller", editor, orphan, "", pod, true},
		{"a user adds an owner that is no controller", editor, addOwner, "", pod, false},
		{"a kubelet writes the status", nodeAgent, `{"status":{"phase":"Running"}}`, "status", pod, false},
		{"a user relabels a StatefulSet", editor, label(name, `"x"`), "", sts, true},
		{"a user relabels a StatefulSet through its status", editor, label(name, `"x"`), "status", sts, true},
		{"a user scales a StatefulSet", editor, `{"spec":{"replicas":3}}`, "", sts, false},
		{"a user relabels a Service", editor, label(name, `"x"`), "", service, true},
		{"a user orphans a revision", editor, orphan, "", revision, true},
		{"a user relabels a pod without an owner", editor, label(name, `"x"`), "", free, false},
		{"the StatefulSet controller adopts a pod", stsID, handOver, "", free, false},
		{"the StatefulSet controller relabels a pod", stsID, label(index, `"7"`), "", pod, false},
		{"the shared identity relabels a pod", sharedID, label(index, `"8"`), "", pod, false},
		{"the operator relabels a StatefulSet", operatorsID, label(name, `"y"`), "", sts, false},
		{"the garbage collector orphans a Service", gcID, orphan, "", service, false},
		{"the garbage collector orphans a pod", gcID, orphan, "", pod, false},
	} {
		err := c.patchAs(tt.user, tt.object, tt.patch, tt.subresource)
		refused := err != nil && strings.Contains(err.Error(), "lockstep-labels")
		expect.That(t, refused == tt.refused && (err != nil) == tt.refused, "%s: %v", tt.name, err)
	}
	c.mustApplyAsOperator()

	dryRun := func(o *install.Options) { o.KeepSets, o.DryRun = true, true }
	expect.Says(t, c.uninstall(dryRun), "lockstep-labels deleted (dry run)\n")
	err := c.patchAs(editor, pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, lwsv1.GroupRestartBudgetFinalizer), "")
	expect.OK(t, err)
	out := c.uninstall(func(o *install.Options) { o.KeepSets = true })
	expect.Says(t, out, "finalizer removed from 1 pods of stopped groups\n")
	if !strings.HasPrefix(out, "validatingadmissionpolicybinding.admissionregistration.k8s.io/lockstep-labels deleted\n") {
		t.Errorf("the policy is not removed first:\n%s", out)
	}
	c.until("a user may relabel the StatefulSet", func() bool { return c.patchAs(editor, sts, label(name, `"z"`), "") == nil })
}

// patchAs patches an object as a user.
func (c *cluster) patchAs(user string, object client.Object, patch, subresource string) error {
	c.t.Helper()
	object = object.DeepCopyObject().(client.Object)
	if subresource != "" {
		return c.as(user, nil).SubResource(subresource).Patch(c.t.Context(), object, merge(patch))
	}
	return c.as(user, nil).Patch(c.t.Context(), object, merge(patch))
}

// mustApplyAsOperator changes a label by server-side apply, as the operator does.
func (c *cluster) mustApplyAsOperator() {
	c.t.Helper()
	sts := appsv1ac.StatefulSet("a", metav1.NamespaceDefault).WithLabels(map[string]string{"leaderworkerset.sigs.k8s.io/template-revision-hash": "h"})
	err := c.as(operatorsID, nil).Apply(c.t.Context(), sts, client.FieldOwner("lws"), client.ForceOwnership)
	expect.That(c.t, err == nil, "the operator applies a StatefulSet: %v", err)
}

// awaitLabelPolicy waits until the API server enforces the policy.
func (c *cluster) awaitLabelPolicy(pod client.Object) {
	c.t.Helper()
	c.until("the policy is enforced", func() bool {
		err := c.patchAs(editor, pod, `{"metadata":{"labels":{"leaderworkerset.sigs.k8s.io/probe":"x"}}}`, "")
		if err == nil {
			err = c.patchAs(editor, pod, `{"metadata":{"labels":{"leaderworkerset.sigs.k8s.io/probe":null}}}`, "")
		}
		return err != nil && strings.Contains(err.Error(), "lockstep-labels")
	})
}

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
			expect.Equalf(t, want, refusal(user), "%s", user)
		}
	}
	c.install(nil)
	bound(account)
	c.uninstall(nil)
	c.until("no policy is left", func() bool { return refusal(renamed) == "" })
	c.install(protectOnly)
	bound(alone)
	c.uninstall(nil)
	c.until("no policy of protection alone is left", func() bool { return refusal(renamed) == "" })
}
