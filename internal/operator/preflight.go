package operator

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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
	if err := o.checkKinds(client); err != nil {
		return err
	}
	if err := o.checkNamespace(ctx, client); err != nil {
		return err
	}
	return o.checkOthers(ctx, client)
}

// checkOthers refuses to start beside another implementation, unless the two compete for
// one lease. Two sets of controllers undo each other's work.
func (o *Options) checkOthers(ctx context.Context, client kubernetes.Interface) error {
	if !o.keepsSets() {
		return nil
	}
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

// checkKinds returns an error if the API server does not serve LeaderWorkerSets: the
// caches would never be synced.
func (o *Options) checkKinds(client kubernetes.Interface) error {
	if !o.keepsSets() {
		return nil
	}
	_, err := client.Discovery().ServerResourcesForGroupVersion(lwsv1.GroupVersion.String())
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the API server at %s does not know %s LeaderWorkerSet; run: lockstep install", o.REST.Host, lwsv1.GroupVersion)
	}
	return err
}

// checkNamespace returns an error if the namespace of lease and certificate does not exist.
// An operator that may not read namespaces runs in a pod of its namespace.
func (o *Options) checkNamespace(ctx context.Context, client kubernetes.Interface) error {
	needed := o.elects() || (o.Webhooks && o.certDir() == "")
	if !needed {
		return nil
	}
	_, err := client.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace %q, of the lease and the webhook certificate, does not exist; run: lockstep install, or name another with --namespace", o.Namespace)
	}
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
