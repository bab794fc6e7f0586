package install

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/lease"
)

// refuseBeside refuses while another implementation runs: two sets of controllers undo each
// other's work. One whose Deployment this installation replaces may run until then: the
// lease keeps the two apart.
func (c *cluster) refuseBeside(ctx context.Context) error {
	holders, err := c.holders(ctx)
	if err != nil {
		return err
	}
	for _, other := range holders {
		if other.Ours() {
			continue
		}
		if c.Image != "" && other.Namespace == namespaceName && other.Deployment() == deploymentName {
			c.say("deployment.apps/%s runs another implementation, %s, and is replaced; the lease passes on once that one is gone", deploymentName, other.Identity)
			continue
		}
		return fmt.Errorf("another implementation runs in namespace %q: %s holds the lease; two would work against each other; "+
			"nothing was installed; stop it, and run install again 15 seconds later: %s", other.Namespace, other.Identity, other.Stop())
	}
	return nil
}

// refuseForeign refuses to uninstall what another implementation runs on.
func (c *cluster) refuseForeign(ctx context.Context) error {
	holders, err := c.holders(ctx)
	if err != nil {
		return err
	}
	for _, holder := range holders {
		if !holder.Ours() {
			return fmt.Errorf("another implementation runs in namespace %q: %s holds the lease, and what is installed under these names is its own; nothing was removed",
				holder.Namespace, holder.Identity)
		}
		c.say("an operator still runs as %s; stop it as well, unless its Deployment goes now", holder.Identity)
	}
	return nil
}

// warnOfUnserved reports DisaggregatedSets, which another implementation served.
func (c *cluster) warnOfUnserved(ctx context.Context) error {
	unserved, err := c.list(ctx, schema.GroupVersionKind{Group: "disaggregatedset.x-k8s.io", Version: "v1", Kind: "DisaggregatedSetList"})
	if err != nil && !unknownKind(err) {
		return fmt.Errorf("list DisaggregatedSets: %w", err)
	}
	if len(unserved) > 0 {
		c.say("%d DisaggregatedSets exist, which Lockstep does not serve: without the other implementation they are not acted upon; their LeaderWorkerSets are", len(unserved))
	}
	return nil
}

// holders returns the holders of the lease, in all namespaces.
func (c *cluster) holders(ctx context.Context) ([]lease.Holder, error) {
	client, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		return nil, err
	}
	return lease.Holders(ctx, client, v1alpha1.DefaultResourceName, namespaceName, time.Now())
}
