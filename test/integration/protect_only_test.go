package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/config"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
)

// TestProtectionNeedsNothingElse runs protection alone, with the rights that it is
// installed with and no others, on an API server that knows no LeaderWorkerSets.
func TestProtectionNeedsNothingElse(t *testing.T) {
	c := newCluster(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemName}}))
	c.grantRoles()
	const operatorUser = "system:serviceaccount:" + systemName + ":lws-controller-manager"
	c.eventually("its rights are known", func(context.Context) bool {
		return may(t, c, operatorUser, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "persistentvolumeclaims"}) &&
			may(t, c, operatorUser, authorizationv1.ResourceAttributes{Namespace: systemName, Verb: "create", Group: "coordination.k8s.io", Resource: "leases"})
	}, nil)
	before := newClaim("default", "before")
	must(c.Create(t.Context(), before))
	r := c.replica(func(o *operator.Options) {
		o.REST = rest.CopyConfig(o.REST)
		o.REST.Impersonate.UserName = operatorUser
		o.Controllers, o.Webhooks = []string{operator.Protection}, false
		o.Config.Protection.Alone = true
		o.Config.LeaderElection.ResourceName = "protection.lockstep.dev"
	}).start().untilReady()
	said := ""
	c.eventually("a claim from before is dressed", func(ctx context.Context) bool {
		now := &corev1.PersistentVolumeClaim{}
		err := c.Get(ctx, client.ObjectKeyFromObject(before), now)
		said = fmt.Sprint(now.Finalizers, err)
		return slices.Contains(now.Finalizers, pvc.PodsFinalizer) && slices.Contains(now.Finalizers, pvc.BarrierFinalizer)
	}, &said)
	must(c.Delete(t.Context(), before))
	c.eventually("it goes", func(ctx context.Context) bool {
		err := c.Get(ctx, client.ObjectKeyFromObject(before), before)
		said = fmt.Sprint(before.Finalizers, err)
		return client.IgnoreNotFound(err) == nil && err != nil
	}, &said)
	r.shut()
}

// grantRoles applies the roles of an installation.
func (c *cluster) grantRoles() {
	c.t.Helper()
	files, err := config.Access.ReadDir("rbac")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range files {
		file, err := config.Access.Open("rbac/" + f.Name())
		if err != nil {
			c.t.Fatal(err)
		}
		for documents := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
			object := &unstructured.Unstructured{}
			if err := documents.Decode(object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				c.t.Fatal(err)
			}
			if object.GetKind() == "" {
				continue
			}
			if err := c.Create(c.t.Context(), object); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}
