package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/lease"
)

// deploymentName is the Deployment that an installation with an image brings.
const deploymentName = "lws-controller-manager"

// refuse refuses, before anything is written, what would not go well.
func (s shape) refuse(ctx context.Context, a applier) error {
	if s.ProtectOnly {
		return s.refuseWhole(ctx, a)
	}
	if err := s.refuseBeside(ctx); err != nil {
		return err
	}
	if err := s.warnOfUnserved(ctx, a); err != nil {
		return err
	}
	if s.protects {
		return nil
	}
	u, err := s.unprotection(ctx, a)
	if err != nil || len(u.found) == 0 {
		return err
	}
	return u.refuse(ctx)
}

// refuseWhole refuses protection by itself beside an installation of ours that has
// it already. One of another implementation is no obstacle.
func (s shape) refuseWhole(ctx context.Context, a applier) error {
	whole, err := s.installed(ctx, a, "lws-manager-role")
	if err != nil || !whole {
		return err
	}
	return errors.New("an installation for LeaderWorkerSets is there already, and protects claims as well; nothing was installed; " +
		"to go on with protection alone: lockstep uninstall --keep-protection, and run this again")
}

// installed tells whether install made the ClusterRole of that name.
func (o Options) installed(ctx context.Context, a applier, role string) (bool, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(groupVersionOf("ClusterRole").WithKind("ClusterRole"))
	u.SetName(role)
	live, err := a.get(ctx, u)
	return live != nil && slices.ContainsFunc(live.GetManagedFields(), isOurApply), err
}

// refuseBeside refuses, before anything is written, where another implementation
// runs on: its controllers and ours would undo each other's work, and webhooks
// taken from it would leave its own half of the cluster without. One that this very
// installation replaces may run until then: the lease keeps the two apart.
func (o Options) refuseBeside(ctx context.Context) error {
	others, err := o.others(ctx)
	if err != nil {
		return err
	}
	for _, other := range others {
		if o.Image != "" && other.Namespace == namespaceName && other.Deployment() == deploymentName {
			o.say("deployment.apps/%s runs another implementation, %s, and is replaced; the lease passes on once that one is gone", deploymentName, other.Identity)
			continue
		}
		return fmt.Errorf("another implementation runs in namespace %q: %s holds the lease; two would work against each other; "+
			"nothing was installed; stop it, and run install again 15 seconds later: %s", other.Namespace, other.Identity, other.Stop())
	}
	return nil
}

// warnOfUnserved tells of what another implementation served and this one does not:
// once that one is gone nobody does.
func (o Options) warnOfUnserved(ctx context.Context, a applier) error {
	kind := schema.GroupVersionKind{Group: "disaggregatedset.x-k8s.io", Version: "v1", Kind: "DisaggregatedSetList"}
	count, err := a.count(ctx, kind)
	if unknownKind(err) || err == nil && count == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for DisaggregatedSets: %w", err)
	}
	o.say("%d DisaggregatedSets exist, which Lockstep does not serve: without the other implementation they are not acted upon; their LeaderWorkerSets are", count)
	return nil
}

// refuseOthers refuses to take away what another implementation lives on.
func (o Options) refuseOthers(ctx context.Context) error {
	others, err := o.others(ctx)
	if err != nil || len(others) == 0 {
		return err
	}
	return fmt.Errorf("another implementation runs in namespace %q: %s holds the lease, and what is installed under these names is its own; "+
		"nothing was removed", others[0].Namespace, others[0].Identity)
}

// others are those who hold a lease and are not Lockstep.
func (o Options) others(ctx context.Context) ([]lease.Holder, error) {
	client, err := kubernetes.NewForConfig(o.REST)
	if err != nil {
		return nil, err
	}
	holders, err := lease.Holders(ctx, client, v1alpha1.DefaultResourceName, namespaceName, time.Now())
	if err != nil {
		return nil, err
	}
	var others []lease.Holder
	for _, holder := range holders {
		if !holder.Ours() {
			others = append(others, holder)
		}
	}
	return others, nil
}
