package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/connect"
	"lockstep.dev/lockstep/internal/lease"
)

// preflight checks before anything starts what would otherwise fail later. Each error says
// what to do. It writes nothing.
func (o *Options) preflight(ctx context.Context) error {
	config := o.restConfig()
	if err := connect.Reach(ctx, config); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if o.keepsSets() {
		err = o.checkKinds(ctx, client)
	}
	if err == nil && (o.elects() || o.Webhooks && o.certDir() == "") {
		err = o.checkNamespace(ctx, client)
	}
	if err == nil && o.keepsSets() {
		err = o.checkOthers(ctx, client)
	}
	return err
}

// servedWithin is how soon the API server serves a definition that was applied a moment ago.
const servedWithin = 10 * time.Second

// checkKinds returns an error if the API server does not serve LeaderWorkerSets: the caches would never be
// synced. It waits for a definition that Helm applied just before.
func (o *Options) checkKinds(ctx context.Context, client kubernetes.Interface) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second/2, servedWithin, true, func(ctx context.Context) (bool, error) {
		_, err := client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, lwsv1.GroupVersion.String())
		return err == nil, crclient.IgnoreNotFound(err)
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("the API server at %s does not know %s LeaderWorkerSet; run: lockstep install", o.REST.Host, lwsv1.GroupVersion)
	}
	return err
}

// checkNamespace returns an error if the namespace of lease and certificate does not exist.
// An operator that may not read namespaces runs in a pod of its namespace.
func (o *Options) checkNamespace(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace %q, of the lease and the webhook certificate, does not exist; run: lockstep install, or name another with --namespace", o.Namespace)
	}
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// checkOthers refuses to start beside another implementation, unless the two compete for
// one lease. Two sets of controllers undo each other's work.
func (o *Options) checkOthers(ctx context.Context, client kubernetes.Interface) error {
	holders, err := lease.Holders(ctx, client, o.Config.LeaderElection.ResourceName, o.Namespace, time.Now())
	if err != nil {
		return err
	}
	for _, holder := range holders {
		switch {
		case holder.Ours():
		case holder.Namespace == o.Namespace && o.elects():
			o.Log.Info("another implementation holds the lease; the controllers start when it is gone", "holder", holder.Identity, "stop it with", holder.Stop())
		default:
			return fmt.Errorf("another implementation runs in namespace %q: %s holds the lease, and nothing keeps the two apart; stop it, and start again 15 seconds later: %s",
				holder.Namespace, holder.Identity, holder.Stop())
		}
	}
	return nil
}

// The kinds of admission policies that older API servers lack.
const (
	MutatingPolicy   = "MutatingAdmissionPolicy"   // since 1.36
	ValidatingPolicy = "ValidatingAdmissionPolicy" // since 1.30
)

// MaxUnavailable is a field that older API servers drop.
const MaxUnavailable = "maxUnavailable of StatefulSets"

// Without says what is missing without a feature of the API server.
var Without = map[string]string{
	MaxUnavailable:   "a rollout replaces one group at a time, whatever the set's maxUnavailable",
	MutatingPolicy:   "before Kubernetes 1.36 the operator adds the barrier after a PVC is created, and mode strict works as hold",
	ValidatingPolicy: "before Kubernetes 1.30 nothing refuses the deletion of a PVC in use, protects labels or bounds the operator; mode barrier works",
}

// Lacks returns the kinds of admission policies that the API server does not serve.
func Lacks(server discovery.ServerResourcesInterface) ([]string, error) {
	served, err := server.ServerResourcesForGroupVersion(admissionv1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		served, err = &metav1.APIResourceList{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which policies the API server serves: %w", err)
	}
	return slices.DeleteFunc([]string{MutatingPolicy, ValidatingPolicy}, func(kind string) bool {
		return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind })
	}), nil
}
