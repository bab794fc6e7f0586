package install

import (
	"bytes"
	"context"
	"slices"
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
	shape := must(c.shape(nil))
	r := must(shape.stale(s.Context(), c))
	changes := map[change]int{}
	for _, u := range must(shape.manifests()) {
		changes[must(c.apply(s.Context(), u))]++
	}
	r.strips = false // nothing ends here
	if err := r.run(s.Context()); err != nil {
		s.Fatal(err)
	}
	return [3]int{changes[created], changes[configured], c.deleted}
}

func (s site) objects() []*unstructured.Unstructured {
	return must(s.cluster(Options{}).installed(s.Context()))
}

func (s site) found() []string { return titles(s.objects()) }

// One cluster goes through installations, one after the other. Each is found as a whole,
// changes nothing when it is repeated, and leaves nothing of the one before.
func TestInstallations(t *testing.T) {
	s := newSite(t)
	s.createObjectsOfOthers()
	if found := s.found(); len(found) > 0 {
		t.Errorf("another's objects are taken for ours: %q", found)
	}
	alone := in("i", with("protection: {alone: true, initialHold: Pending}"))
	for i, step := range []struct {
		options Options
		deleted int
		stays   []string // of the installation before
	}{
		{in("i", Options{ProtectOnly: true}), 0, nil},
		{alone, 10, nil}, // the names of protection alone
		{Options{}, 8, []string{"Deployment", "ConfigMap", "Service"}},
		{Options{NoProtection: true}, 27, []string{"Deployment", "ConfigMap", "Service"}},
	} {
		changes := s.install(step.options)
		want := load(t, step.options)
		found := s.objects()
		for _, u := range found {
			if !isIn(u, want) && !slices.Contains(step.stays, u.GetKind()) {
				t.Errorf("step %d: %s stays", i, title(u))
			}
		}
		for _, u := range want {
			if !isIn(u, found) {
				t.Errorf("step %d: %s is not found", i, title(u))
			}
		}
		if changes[2] != step.deleted {
			t.Errorf("step %d: %v changes", i, changes)
		}
	}
	if got := s.install(Options{NoProtection: true}); got != [3]int{} {
		t.Errorf("repeated: %v", got)
	}
	s.mustHaveReplacedObjectsOfOthers()
}

// createObjectsOfOthers writes under our names, as another implementation or a user.
func (s site) createObjectsOfOthers() {
	for _, u := range load(s.T, in("theirs", Options{NoProtection: true})) {
		switch u.GetKind() {
		default:
			continue
		case "MutatingWebhookConfiguration":
			hook := webhooksOf(u)[0]
			hook["clientConfig"].(map[string]any)["caBundle"], hook["failurePolicy"] = "Ym8=", "Ignore"
			u.Object["webhooks"] = append(u.Object["webhooks"].([]any), map[string]any{"name": "theirs.example.com"})
		case "Service":
			u.Object["spec"].(map[string]any)["clusterIP"], u.Object["spec"].(map[string]any)["ports"] = "10.0.0.7", []any{}
		}
		u.SetAnnotations(map[string]string{"theirs": "kept"})
		s.create(u)
	}
}

func (s site) create(u *unstructured.Unstructured) {
	s.Helper()
	if err := s.client.Create(s.Context(), u, client.FieldOwner("kubectl")); err != nil {
		s.Fatal(err)
	}
}

// mustHaveReplacedObjectsOfOthers checks that allocated fields are kept, and no others.
func (s site) mustHaveReplacedObjectsOfOthers() {
	s.Helper()
	for _, u := range load(s.T, Options{}) {
		live := must(s.cluster(Options{}).get(s.Context(), u))
		switch u.GetKind() {
		case "MutatingWebhookConfiguration":
			hooks := webhooksOf(live)
			bundle, _, _ := unstructured.NestedString(hooks[0], "clientConfig", "caBundle")
			if len(hooks) != len(webhooksOf(u)) || bundle != "Ym8=" || live.GetAnnotations()["theirs"] == "" {
				s.Errorf("got %v", live.Object)
			}
		case "Service":
			if address, _, _ := unstructured.NestedString(live.Object, "spec", "clusterIP"); address != "10.0.0.7" {
				s.Errorf("a Service lost its address: %q", address)
			}
		}
	}
}

func TestUninstallFindsWhatItRemoves(t *testing.T) {
	s := newSite(t)
	s.create(object("v1", "Namespace", "", namespaceName))
	s.create(object("v1", "Secret", namespaceName, "lws-webhook-server-cert"))
	s.install(in("i", Options{}))
	if slices.Contains(s.found(), "namespace/lws-system") {
		t.Error("a namespace that install did not create is removed")
	}
	c := s.cluster(Options{KeepSets: true, KeepProtection: true})
	r := c.removal(must(c.installed(t.Context())), c.removes)
	r.operators = nil
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, u := range s.objects() {
		if !isDefinition(u) && !ofProtection(u) {
			t.Errorf("%s stays", title(u))
		}
	}
	if !slices.ContainsFunc(s.objects(), isDefinition) || !slices.ContainsFunc(s.objects(), ofProtection) {
		t.Errorf("left: %q", s.found())
	}
}

// An object with the labels of protection is found if it is a policy or a ClusterRole.
func TestCopiedLabelsMakeNothingOurs(t *testing.T) {
	s := newSite(t)
	for kind, group := range map[string]string{
		"ConfigMap": "v1", "Service": "v1", "ServiceAccount": "v1", "Deployment": "apps/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
		"ClusterRole": "rbac.authorization.k8s.io/v1", "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
	} {
		u := object(group, kind, "prod", "mine")
		if kind == "ClusterRole" || kind == "ValidatingAdmissionPolicy" {
			u.SetNamespace("")
		}
		u.SetLabels(map[string]string{nameLabel: standaloneLabel, componentLabel: "protection"})
		s.create(u)
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
		toDelete bool
		blocks   bool
	}{"runs": {1, false, true}, "stopped": {0, false, false}, "deleted with the rest": {1, true, false}} {
		s := newSite(t)
		u := object("apps/v1", "Deployment", namespaceName, deploymentName)
		u.Object["spec"] = map[string]any{"replicas": tt.replicas}
		s.create(u)
		r := s.cluster(Options{}).removal([]*unstructured.Unstructured{u}, func(*unstructured.Unstructured) bool { return tt.toDelete })
		if err := r.refuseRunning(t.Context(), true); (err != nil) != tt.blocks {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
