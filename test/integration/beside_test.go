package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/expect"
)

const (
	leaseName = "b8b2488c.x-k8s.io"
	theirPod  = "lws-controller-manager-5d4f8c7b9-x2k4m_0b6f3c"
)

// reference creates the manifests of another implementation, as kubectl does.
func (c *cluster) reference() {
	c.t.Helper()
	for _, o := range c.manifests("reference.yaml") {
		c.must(c.Create(c.t.Context(), o, client.FieldOwner("kubectl-client-side-apply")))
	}
	c.create(c.foreignDefinition())
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

func withImage(o *install.Options) { o.WebhookURL, o.Image = "", "example.com/lockstep:v1" }

// Protection alone can be installed while another implementation runs. The full install is refused until
// the other one is stopped, and then replaces everything.
func TestInstallReplacesAnotherImplementation(t *testing.T) {
	c := newCluster(t)
	c.reference()
	c.lease(systemName, theirPod, 0)
	c.mustProtectBeside()
	c.refused(install.Install, nil, systemName, theirPod,
		"kubectl --namespace lws-system scale deployment lws-controller-manager --replicas=0", "nothing was installed")
	hooks := c.validating().Webhooks
	expect.Equalf(t, 2, len(hooks), "the refused install wrote webhooks: %+v", hooks)
	if out := c.install(func(o *install.Options) { withImage(o); o.DryRun = true }); !strings.Contains(out, "deployment.apps/lws-controller-manager configured (dry run)") {
		t.Errorf("the dry run printed:\n%s", out)
	}
	out := c.install(withImage)
	if !strings.Contains(out, "deployment.apps/lws-controller-manager configured\n") || !strings.Contains(out, theirPod) {
		t.Errorf("install printed:\n%s", out)
	}
	c.mustHoldOwnDefinition()
	c.mustRunLockstepAlone()
	c.installAgain(withImage)
}

// mustProtectBeside installs protection alone, and removes it.
func (c *cluster) mustProtectBeside() {
	c.t.Helper()
	alone := func(o *install.Options) { withImage(o); o.ProtectOnly = true }
	theirs := c.mutating().ResourceVersion
	c.install(alone)
	c.awaitFinalizers("default", pvc.PodsFinalizer, pvc.BarrierFinalizer)
	c.installAgain(alone)
	bindings := &rbacv1.ClusterRoleBinding{}
	c.read(bindings, "", "lockstep-protection-rolebinding")
	if s := bindings.Subjects[0]; s.Namespace != standaloneName || s.Name != "lockstep-controller-manager" {
		c.t.Errorf("the ClusterRoleBinding names %v", s)
	}
	c.uninstall(nil)
	c.mustBeClean()
	c.absent(&corev1.Namespace{}, standaloneName)
	expect.That(c.t, c.mutating().ResourceVersion == theirs, "the webhooks of the other implementation changed")
	c.read(&corev1.Namespace{}, "", systemName)
}

func (c *cluster) mustRunLockstepAlone() {
	c.t.Helper()
	deployment := &appsv1.Deployment{}
	c.read(deployment, systemName, "lws-controller-manager")
	pod := deployment.Spec.Template.Spec
	isTheirs := func(v corev1.Volume) bool { return v.Name != "lockstep-configuration" } // ours has what theirs said
	if slices.ContainsFunc(pod.Volumes, isTheirs) || len(pod.Containers) != 1 || len(pod.Containers[0].VolumeMounts) != len(pod.Volumes) ||
		pod.Containers[0].Command[0] != "/lockstep" || pod.Containers[0].Image != "example.com/lockstep:v1" {
		c.t.Errorf("the deployment still has fields of the other implementation: %+v", pod)
	}
	hooks := c.validating().Webhooks
	if len(hooks) != 2 || hooks[0].Name != "vleaderworkerset.kb.io" || hooks[1].Name != "vdisaggregatedset.kb.io" || len(hooks[0].NamespaceSelector.MatchLabels) > 0 {
		c.t.Errorf("webhooks of the other implementation are left: %+v", hooks)
	}
	expect.That(c.t, c.mutating().Annotations["theirs"] == "kept", "an annotation of a user is gone")
	role := &rbacv1.ClusterRole{}
	c.read(role, "", "lws-manager-role")
	for _, rule := range role.Rules {
		expect.That(c.t, !slices.Contains(rule.Resources, "secrets"),
			"the role still grants rules of the other implementation: %+v", rule)
	}
}

// The lease of an implementation in another namespace blocks no replica, so the operator ends. If both
// use one lease, the operator waits for it. Without leader election the operator ends.
func TestOperatorDoesNotStartBesideAnotherImplementation(t *testing.T) {
	c := newCluster(t)
	const ns = "elsewhere"
	for _, name := range []string{ns, systemName} {
		c.create(namespaced(name))
		c.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: leaseName}})
	}
	c.lease(ns, theirPod, 0)
	c.refused(install.Install, withImage, `"elsewhere"`)
	c.absent(&apiextensionsv1.CustomResourceDefinition{}, crdName)

	c.lease(ns, theirPod, time.Hour)
	logged := &warnings{}
	competing := c.replica(func(o *operator.Options) {
		o.Log = funcr.New(func(_, args string) { logged.HandleWarningHeader(0, "", args) }, funcr.Options{})
	})
	c.install(competing.called)
	c.lease(ns, theirPod, 0)
	for _, elect := range []bool{true, false} {
		c.mustNotRun(elect, `"elsewhere"`, "kubectl --namespace elsewhere scale")
	}

	c.lease(ns, theirPod, time.Hour)
	c.lease(systemName, theirPod, 0)
	c.mustNotRun(false, theirPod)
	c.refused(install.Uninstall, func(o *install.Options) { o.KeepSets = true }, "nothing was removed")
	c.mutating()

	competing.start().untilReady() // its webhooks serve, its controllers wait
	var log string
	c.until("the waiting operator names the holder of the lease", func() bool {
		log += logged.taken() + "\n"
		return strings.Contains(log, "another implementation holds the lease") && strings.Contains(log, theirPod)
	})
	competing.shut()
	expect.Equalf(t, theirPod, c.holder(), "who holds the lease")
}

// mustNotRun checks that an operator ends with an error that has these texts.
func (c *cluster) mustNotRun(elect bool, texts ...string) {
	c.t.Helper()
	r := c.replica(func(o *operator.Options) { o.Config.LeaderElection.LeaderElect = &elect })
	err := operator.Run(c.t.Context(), r.options)
	for _, text := range texts {
		expect.ErrorSays(c.t, err, text, elect)
	}
}
