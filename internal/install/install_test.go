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

func (s site) objects() []*unstructured.Unstructured {
	return must(s.cluster(Options{}).installed(s.Context()))
}

func (s site) found() []string { return titles(s.objects()) }

func (s site) create(u *unstructured.Unstructured) {
	s.Helper()
	if err := s.client.Create(s.Context(), u, client.FieldOwner("kubectl")); err != nil {
		s.Fatal(err)
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
