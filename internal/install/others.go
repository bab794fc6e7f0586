package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/lease"
)

// refuse refuses, before any write, an installation that would not go well.
func (s shape) refuse(ctx context.Context, a applier) error {
	if s.ProtectOnly {
		return s.refuseOverWhole(ctx, a)
	}
	if err := s.refuseBeside(ctx); err != nil {
		return err
	}
	if err := s.warnOfUnserved(ctx, a); err != nil || s.protects {
		return err
	}
	w, err := s.withdrawal(ctx, a)
	if err != nil || len(w.found) == 0 {
		return err
	}
	return w.refuse(ctx)
}

// refuseOverWhole refuses protection alone where a whole installation of ours has it.
func (s shape) refuseOverWhole(ctx context.Context, a applier) error {
	isWhole, err := s.installed(ctx, a, "lws-manager-role")
	if err != nil || !isWhole {
		return err
	}
	return errors.New("an installation for LeaderWorkerSets is there already, and protects claims as well; nothing was installed; " +
		"to go on with protection alone: lockstep uninstall --keep-protection, and run this again")
}

// installed reports whether install made the ClusterRole of that name.
func (o Options) installed(ctx context.Context, a applier, role string) (bool, error) {
	live, err := a.get(ctx, object("rbac.authorization.k8s.io/v1", "ClusterRole", "", role))
	return live != nil && isOurs(live), err
}

// refuseBeside refuses while another implementation runs: two sets of controllers undo each
// other's work. One whose Deployment this installation replaces may run until then: the
// lease keeps the two apart.
func (o Options) refuseBeside(ctx context.Context) error {
	holders, err := o.holders(ctx)
	if err != nil {
		return err
	}
	for _, other := range holders {
		if other.Ours() {
			continue
		}
		if o.Image != "" && other.Namespace == namespaceName && other.Deployment() == deploymentName {
			o.say("deployment.apps/%s runs another implementation, %s, and is replaced; the lease passes on once that one is gone", deploymentName, other.Identity)
			continue
		}
		return fmt.Errorf("another implementation runs in namespace %q: %s holds the lease; two would work against each other; "+
			"nothing was installed; stop it, and run install again 15 seconds later: %s", other.Namespace, other.Identity, other.Stop())
	}
	return nil
}

// warnOfUnserved reports DisaggregatedSets, which another implementation served.
func (o Options) warnOfUnserved(ctx context.Context, a applier) error {
	count, err := a.count(ctx, schema.GroupVersionKind{Group: "disaggregatedset.x-k8s.io", Version: "v1", Kind: "DisaggregatedSetList"})
	if unknownKind(err) || err == nil && count == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list DisaggregatedSets: %w", err)
	}
	o.say("%d DisaggregatedSets exist, which Lockstep does not serve: without the other implementation they are not acted upon; their LeaderWorkerSets are", count)
	return nil
}

// holders returns the holders of the lease, in all namespaces.
func (o Options) holders(ctx context.Context) ([]lease.Holder, error) {
	client, err := kubernetes.NewForConfig(o.REST)
	if err != nil {
		return nil, err
	}
	return lease.Holders(ctx, client, v1alpha1.DefaultResourceName, namespaceName, time.Now())
}
