package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/config"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
)

// TestProtectionNeedsNothingElse runs protection alone, with the rights of its installation, without the
// CRD of sets.
func TestProtectionNeedsNothingElse(t *testing.T) {
	c := newCluster(t)
	c.must(c.Create(t.Context(), namespaced(systemName)))
	c.grantRoles()
	const operatorUser = "system:serviceaccount:" + systemName + ":lws-controller-manager"
	c.eventually("its rights are known", func(context.Context) bool {
		return c.may(operatorUser, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "persistentvolumeclaims"}) &&
			c.may(operatorUser, authorizationv1.ResourceAttributes{Namespace: systemName, Verb: "create", Group: "coordination.k8s.io", Resource: "leases"})
	}, nil)
	before := newClaim("default", "before")
	c.must(c.Create(t.Context(), before))
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
	c.must(c.Delete(t.Context(), before))
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
	c.must(err)
	for _, f := range files {
		file, err := config.Access.Open("rbac/" + f.Name())
		c.must(err)
		c.eachIn(file, func(o *unstructured.Unstructured) { c.create(o) })
	}
}
