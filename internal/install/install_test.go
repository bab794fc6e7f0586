package install

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// site is a cluster without controllers.
type site struct {
	*testing.T
	client client.Client
}

func newSite(t *testing.T) site {
	scheme := clientgoscheme.Scheme
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return site{t, fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().Build()}
}

func (s site) cluster(o Options) *cluster {
	o.Out, o.Timeout = &bytes.Buffer{}, time.Second
	return &cluster{Options: o, client: s.client}
}

// install returns how many objects were created, configured and deleted.
func (s site) install(o Options) [3]int {
	s.Helper()
	c := s.cluster(o)
	shape, err := c.shape(nil)
	if err != nil {
		s.Fatal(err)
	}
	r, err := shape.stale(s.Context(), c)
	if err != nil {
		s.Fatal(err)
	}
	changes := map[change]int{}
	for _, u := range must(shape.manifests()) {
		what, err := c.apply(s.Context(), u)
		if err != nil {
			s.Fatal(err)
		}
		changes[what]++
	}
	r.strips = false // nothing ends here
	if err := r.run(s.Context()); err != nil {
		s.Fatal(err)
	}
	return [3]int{changes[created], changes[configured], c.deleted}
}

func (s site) found() []string {
	s.Helper()
	found, err := s.cluster(Options{}).installed(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return titles(found)
}

func TestAnInstallationIsFoundAndRepeatable(t *testing.T) {
	for name, o := range map[string]Options{
		"whole": {Image: "i"}, "alone": {ProtectOnly: true},
	} {
		s := newSite(t)
		all := titles(load(t, o))
		if got := s.install(o); got != [3]int{len(all)} {
			t.Errorf("%s: got %v, want %d created", name, got, len(all))
		}
		if got := s.install(o); got != [3]int{} {
			t.Errorf("%s: again: %v", name, got)
		}
		found := s.found()
		slices.Sort(all)
		if slices.Sort(found); !slices.Equal(found, all) {
			t.Errorf("%s: found %q, want %q", name, found, all)
		}
	}
}

// Another configuration leaves nothing of the one before.
func TestObjectsThatAreNotWantedAreDeleted(t *testing.T) {
	s := newSite(t)
	before := with("protection: {alone: true, initialHold: Pending}")
	before.Image = "i"
	s.install(before)
	if got := s.install(Options{}); got[2] != 8 {
		t.Errorf("got %v", got)
	}
	if s.install(Options{NoProtection: true}); slices.ContainsFunc(s.found(), func(name string) bool { return strings.Contains(name, "protection") }) {
		t.Errorf("protection stays: %q", s.found())
	}
}

func TestTheWholeReplacesProtectionAlone(t *testing.T) {
	s := newSite(t)
	s.install(Options{Image: "i", ProtectOnly: true})
	s.install(Options{Image: "i"})
	if found := s.found(); slices.Contains(found, "namespace/lockstep-system") || slices.Contains(found, "deployment.apps/lockstep-controller-manager") {
		t.Errorf("found %q", found)
	}
}

// What another implementation, or a user, wrote under our names is replaced. Its other
// objects are not ours.
func TestObjectsOfOthersAreReplacedOrLeftAlone(t *testing.T) {
	s := newSite(t)
	var theirs []string
	for _, u := range load(t, Options{Image: "theirs"}) {
		if ofProtection(u) || u.GetKind() == "Namespace" {
			continue
		}
		switch u.GetKind() {
		case "MutatingWebhookConfiguration":
			hook := webhooksOf(u)[0]
			hook["clientConfig"].(map[string]any)["caBundle"] = "Ym8="
			u.Object["webhooks"] = append(u.Object["webhooks"].([]any), map[string]any{"name": "theirs.example.com"})
		case "Service":
			if err := unstructured.SetNestedField(u.Object, "10.0.0.7", "spec", "clusterIP"); err != nil {
				t.Fatal(err)
			}
		}
		u.SetAnnotations(map[string]string{"theirs": "kept"})
		theirs = append(theirs, title(u))
		if err := s.client.Create(t.Context(), u, client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
	}
	if found := s.found(); len(found) > 0 {
		t.Errorf("another's objects are taken for ours: %q", found)
	}
	s.install(Options{Image: "i"})
	if found := s.found(); len(found) < len(theirs) {
		t.Errorf("found %q", found)
	}
	for _, u := range load(t, Options{Image: "i"}) {
		live := must(s.cluster(Options{}).get(t.Context(), u))
		switch u.GetKind() {
		case "MutatingWebhookConfiguration":
			hooks := webhooksOf(live)
			bundle, _, _ := unstructured.NestedString(hooks[0], "clientConfig", "caBundle")
			if len(hooks) != len(webhooksOf(u)) || bundle != "Ym8=" || live.GetAnnotations()["theirs"] == "" {
				t.Errorf("got %v", live.Object)
			}
		case "Service":
			if address, _, _ := unstructured.NestedString(live.Object, "spec", "clusterIP"); address != "10.0.0.7" {
				t.Errorf("a Service lost its address: %q", address)
			}
		}
	}
}

func TestUninstallFindsWhatItRemoves(t *testing.T) {
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	namespace.SetName(namespaceName)
	s := newSite(t)
	if err := s.client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	s.install(Options{Image: "i"})
	if slices.Contains(s.found(), "namespace/lws-system") {
		t.Error("a namespace that install did not create is removed")
	}
	secret := object("v1", "Secret", namespaceName, "lws-webhook-server-cert")
	if err := s.client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	c := s.cluster(Options{KeepSets: true, KeepProtection: true})
	r := c.removal(must(c.installed(t.Context())), c.removes)
	r.operators = nil
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := s.found()
	if !slices.Contains(left, "customresourcedefinition.apiextensions.k8s.io/leaderworkersets.leaderworkerset.x-k8s.io") {
		t.Errorf("the definition is gone: %q", left)
	}
	if slices.Contains(left, "secret/lws-webhook-server-cert") || slices.ContainsFunc(left, func(name string) bool { return strings.Contains(name, "/lws-") }) {
		t.Errorf("left: %q", left)
	}
	if !slices.Contains(left, "clusterrole.rbac.authorization.k8s.io/lockstep-protection-role") {
		t.Errorf("protection is gone: %q", left)
	}
}

// An object with the labels of protection is found if it is a policy or a ClusterRole.
func TestCopiedLabelsMakeNothingOurs(t *testing.T) {
	s := newSite(t)
	for kind, group := range map[string]string{
		"ConfigMap": "v1", "Service": "v1", "ServiceAccount": "v1", "Deployment": "apps/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
		"ClusterRole": "rbac.authorization.k8s.io/v1", "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
	} {
		u := object(group, kind, "", "mine")
		if kind != "ClusterRole" && kind != "ValidatingAdmissionPolicy" {
			u.SetNamespace("prod")
		}
		u.SetLabels(map[string]string{nameLabel: standaloneLabel, componentLabel: "protection"})
		if err := s.client.Create(t.Context(), u, client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
	}
	found := s.found()
	if slices.Sort(found); !slices.Equal(found, []string{"clusterrole.rbac.authorization.k8s.io/mine", "validatingadmissionpolicy.admissionregistration.k8s.io/mine"}) {
		t.Errorf("found %q", found)
	}
}

// Two installs at once: the loser of a race reads again.
func TestAnotherInstallAtTheSameTime(t *testing.T) {
	for name, race := range map[string]func(*cluster, *unstructured.Unstructured) error{
		"creates the object first": func(c *cluster, u *unstructured.Unstructured) error { return c.create(t.Context(), u) },
		"changes the object first": func(c *cluster, u *unstructured.Unstructured) error {
			u.SetLabels(map[string]string{"theirs": "yes"})
			if err := c.create(t.Context(), u.DeepCopy()); err != nil {
				return err
			}
			return apierrors.NewConflict(schema.GroupResource{}, u.GetName(), nil)
		},
	} {
		s := newSite(t)
		c, raced := s.cluster(Options{}), false
		c.client = interceptor.NewClient(s.client.(client.WithWatch), interceptor.Funcs{
			Create: func(ctx context.Context, to client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if u := o.(*unstructured.Unstructured); !raced {
					raced = true
					if err := race(s.cluster(Options{}), u.DeepCopy()); err != nil {
						return err
					}
				}
				return to.Create(ctx, o, options...)
			},
		})
		u := object("v1", "ServiceAccount", "prod", "lws")
		u.SetLabels(map[string]string{"ours": "yes"})
		if _, err := c.apply(t.Context(), u); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if live := must(c.get(t.Context(), u)); live == nil || live.GetLabels()["ours"] != "yes" {
			t.Errorf("%s: got %v", name, live)
		}
	}
}

func TestUninstallRefusesBesideAnOperatorThatStays(t *testing.T) {
	for name, tt := range map[string]struct {
		replicas int64
		doomed   bool
		blocks   bool
	}{"runs": {1, false, true}, "stopped": {0, false, false}, "deleted with the rest": {1, true, false}} {
		s := newSite(t)
		u := object("apps/v1", "Deployment", namespaceName, deploymentName)
		u.Object["spec"] = map[string]any{"replicas": tt.replicas}
		if err := s.client.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		r := s.cluster(Options{}).removal([]*unstructured.Unstructured{u}, func(*unstructured.Unstructured) bool { return tt.doomed })
		if err := r.refuseRunning(t.Context(), true); (err != nil) != tt.blocks {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
