package integration

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
)

const (
	leaseName = "b8b2488c.x-k8s.io"
	theirPod  = "lws-controller-manager-5d4f8c7b9-x2k4m_0b6f3c"
)

// reference creates the manifests of another implementation, as kubectl does.
func (c *cluster) reference() {
	c.t.Helper()
	manifest, err := os.Open(filepath.Join("testdata", "reference.yaml"))
	c.must(err)
	defer manifest.Close()
	c.eachIn(manifest, func(o *unstructured.Unstructured) {
		c.must(c.Create(c.t.Context(), o, client.FieldOwner("kubectl-client-side-apply")))
	})
	c.create(foreignDefinition(c))
}

// lease renews a lease at a time in the past.
func (c *cluster) lease(namespace, holder string, ago time.Duration) {
	c.t.Helper()
	lease := &coordinationv1.Lease{}
	c.read(lease, namespace, leaseName)
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: new(int32(600)), RenewTime: &metav1.MicroTime{Time: time.Now().Add(-ago)},
	}
	c.must(c.Update(c.t.Context(), lease))
}

// refused returns the error of an install or uninstall that must not go on.
func (c *cluster) refused(do func(*install.Options) error, change func(*install.Options)) string {
	c.t.Helper()
	var out bytes.Buffer
	o := c.options(&out)
	if change != nil {
		change(&o)
	}
	err := do(&o)
	if err == nil {
		c.t.Fatalf("it went on:\n%s", &out)
	}
	return err.Error()
}

func withImage(o *install.Options) { o.WebhookURL, o.Image = "", "example.com/lockstep:v1" }

// Install refuses beside an implementation that runs. Over one that was stopped it replaces everything.
func TestInstallTakesTheWholePlaceOfAnother(t *testing.T) {
	c := newCluster(t)
	c.reference()
	c.lease(systemName, theirPod, 0)
	doInstall := func(o *install.Options) error { return install.Install(t.Context(), *o) }

	text := c.refused(doInstall, nil)
	for _, want := range []string{systemName, theirPod, "kubectl --namespace lws-system scale deployment lws-controller-manager --replicas=0", "nothing was installed"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q: %s", want, text)
		}
	}
	if hooks := c.validating().Webhooks; len(hooks) != 2 {
		t.Errorf("the refused run wrote: %+v", hooks)
	}
	if out := c.install(func(o *install.Options) { withImage(o); o.DryRun = true }); !strings.Contains(out, "deployment.apps/lws-controller-manager configured (dry run)") {
		t.Errorf("the dry run said:\n%s", out)
	}
	out := c.install(withImage)
	if !strings.Contains(out, "deployment.apps/lws-controller-manager configured\n") || !strings.Contains(out, theirPod) {
		t.Errorf("it said:\n%s", out)
	}
	c.mustHoldOwnDefinition()
	c.mustRunLockstepAlone()
	if again := c.install(withImage); !strings.Contains(again, "nothing had to be changed") {
		t.Errorf("the second run:\n%s", again)
	}
}

func (c *cluster) mustRunLockstepAlone() {
	c.t.Helper()
	deployment := &appsv1.Deployment{}
	c.read(deployment, systemName, "lws-controller-manager")
	pod := deployment.Spec.Template.Spec
	if len(pod.Volumes) > 0 || len(pod.Containers) != 1 || len(pod.Containers[0].VolumeMounts) > 0 ||
		pod.Containers[0].Command[0] != "/lockstep" || pod.Containers[0].Image != "example.com/lockstep:v1" {
		c.t.Errorf("the deployment is still half the other's: %+v", pod)
	}
	hooks := c.validating().Webhooks
	if len(hooks) != 1 || hooks[0].Name != "vleaderworkerset.kb.io" || len(hooks[0].NamespaceSelector.MatchLabels) > 0 {
		c.t.Errorf("webhooks of the other are left: %+v", hooks)
	}
	if c.mutating().Annotations["theirs"] != "kept" {
		c.t.Error("an annotation of a user is gone")
	}
	role := &rbacv1.ClusterRole{}
	c.read(role, "", "lws-manager-role")
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			if resource == "secrets" {
				c.t.Errorf("rights of the other are still granted: %+v", rule)
			}
		}
	}
}

// The lease of an implementation in another namespace keeps no replica out.
func TestAnotherNamespacesImplementationIsSeen(t *testing.T) {
	c := newCluster(t)
	ns := "elsewhere"
	c.create(namespaced(ns))
	c.create(namespaced(systemName))
	c.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: leaseName}})
	c.lease(ns, theirPod, 0)
	text := c.refused(func(o *install.Options) error { return install.Install(t.Context(), *o) }, withImage)
	if !strings.Contains(text, `"elsewhere"`) {
		t.Errorf("got %s", text)
	}
	c.absent(&apiextensionsv1.CustomResourceDefinition{}, crdName)

	c.lease(ns, theirPod, time.Hour)
	c.install(nil)
	c.lease(ns, theirPod, 0)
	for _, elect := range []bool{true, false} {
		r := c.replica(func(o *operator.Options) { o.Config.LeaderElection.LeaderElect = &elect })
		if err := operator.Run(t.Context(), r.options); err == nil || !strings.Contains(err.Error(), `"elsewhere"`) || !strings.Contains(err.Error(), "kubectl --namespace elsewhere scale") {
			t.Errorf("with election %t: %v", elect, err)
		}
	}
}

// With one lease the operator waits for the other implementation. Without election it ends.
func TestTheOperatorDoesNotStartBesideAnother(t *testing.T) {
	c := newCluster(t)
	said := &warnings{}
	competing := c.replica(func(o *operator.Options) {
		o.Log = funcr.New(func(_, args string) { said.HandleWarningHeader(0, "", args) }, funcr.Options{})
	})
	c.install(func(o *install.Options) { o.WebhookURL = competing.webhookURL() })
	c.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: systemName, Name: leaseName}})
	c.lease(systemName, theirPod, 0)
	alone := c.replica(func(o *operator.Options) { o.Config.LeaderElection.LeaderElect = new(false) })
	if err := operator.Run(t.Context(), alone.options); err == nil || !strings.Contains(err.Error(), theirPod) {
		t.Errorf("without election: %v", err)
	}
	doUninstall := func(o *install.Options) error { return install.Uninstall(t.Context(), *o) }
	if text := c.refused(doUninstall, func(o *install.Options) { o.KeepSets = true }); !strings.Contains(text, "nothing was removed") {
		t.Errorf("uninstall says: %s", text)
	}
	c.mutating()

	competing.start().untilReady() // its webhooks serve, its controllers wait
	var log string
	c.eventually("who waits says for whom", func(context.Context) bool {
		log += strings.Join(said.taken(), "\n") + "\n"
		return strings.Contains(log, "another implementation holds the lease") && strings.Contains(log, theirPod)
	}, &log)
	competing.shut()
	lease := &coordinationv1.Lease{}
	if c.read(lease, systemName, leaseName); *lease.Spec.HolderIdentity != theirPod {
		t.Errorf("%s took the lease", *lease.Spec.HolderIdentity)
	}
}
