package install

import (
	"context"
	"io"
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

// clusterOf is a cluster without controllers.
func clusterOf(t *testing.T) (*cluster, client.WithWatch) {
	t.Helper()
	if err := apiextensionsv1.AddToScheme(clientgoscheme.Scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithReturnManagedFields().Build()
	return &cluster{Options: Options{Out: io.Discard, Timeout: time.Second}, client: c}, c
}

// An object with the labels of protection is found if it is a policy or a ClusterRole.
func TestCopiedLabelsMakeNothingOurs(t *testing.T) {
	c, _ := clusterOf(t)
	for kind, group := range map[string]string{
		"ConfigMap": "v1", "Service": "v1", "ServiceAccount": "v1", "Deployment": "apps/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
		"ClusterRole": "rbac.authorization.k8s.io/v1", "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
	} {
		u := Bare(group, kind, "prod", "mine")
		if kind == "ClusterRole" || kind == "ValidatingAdmissionPolicy" {
			u.SetNamespace("")
		}
		u.SetLabels(map[string]string{nameLabel: standaloneLabel, componentLabel: "protection"})
		if err := c.client.Create(t.Context(), u, client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
	}
	found := titles(must(c.installed(t.Context())))
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
		other, store := clusterOf(t)
		c, raced := *other, false
		c.client = interceptor.NewClient(store, interceptor.Funcs{
			Create: func(ctx context.Context, to client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if u := o.(*unstructured.Unstructured); !raced {
					raced = true
					if err := race(other, u.DeepCopy()); err != nil {
						return err
					}
				}
				return to.Create(ctx, o, options...)
			},
		})
		u := Bare("v1", "ServiceAccount", "prod", "lws")
		u.SetLabels(map[string]string{"ours": "yes"})
		if _, err := c.apply(t.Context(), u); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if live := must(c.get(t.Context(), u)); live == nil || live.GetLabels()["ours"] != "yes" {
			t.Errorf("%s: got %v", name, live)
		}
	}
}
