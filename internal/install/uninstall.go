package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/lease"
)

// Uninstall takes away everything an installation consists of and everything
// the operator made for itself. It refuses, before it removes anything, while
// LeaderWorkerSets exist, which would go with their definition, unless both are to
// stay, and while another implementation has taken our place.
func Uninstall(ctx context.Context, o Options) error {
	a, err := o.open()
	if err != nil {
		return err
	}
	if err := o.refuseOthers(ctx); err != nil {
		return err
	}
	if !o.KeepSets {
		if err := o.refuseWithSets(ctx, a); err != nil {
			return err
		}
	}
	doomed, err := o.doomed(ctx, a)
	if err != nil {
		return err
	}
	if len(doomed) == 0 {
		o.say("nothing to remove")
		return nil
	}
	o.warnOfHolder(ctx, a)
	for _, u := range doomed {
		if err := o.remove(ctx, a, u); err != nil {
			return err
		}
	}
	if !o.DryRun {
		for _, u := range doomed {
			if err := o.untilGone(ctx, a, u); err != nil {
				return err
			}
		}
	}
	if o.KeepSets {
		return o.tellOfKept(ctx, a)
	}
	return nil
}

func (o Options) refuseWithSets(ctx context.Context, a applier) error {
	names, more, err := o.sets(ctx, a)
	if unknownKind(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for LeaderWorkerSets: %w", err)
	}
	if len(names) == 0 {
		return nil
	}
	some := strings.Join(names, ", ")
	if more > 0 {
		some += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("LeaderWorkerSets exist (%s) and would be deleted with their definition; nothing was removed; delete them first: kubectl delete leaderworkersets --all --all-namespaces; or leave them to another implementation: lockstep uninstall --keep-sets", some)
}

// doomed lists what is there to be removed, in the order in which it goes: the
// webhooks first, since they would refuse what the departing operator can no
// longer answer, the namespace with all that is left in it last.
func (o Options) doomed(ctx context.Context, a applier) ([]*unstructured.Unstructured, error) {
	all, err := everything()
	if err != nil {
		return nil, err
	}
	slices.Reverse(all)
	own := len(all) - 1 // before the namespace
	all = slices.Insert(all, own, operatorsOwn()...)
	if o.KeepSets {
		all = keeping(all)
	}
	var found []*unstructured.Unstructured
	for _, u := range inOrder(all) {
		live, err := a.get(ctx, u)
		if err != nil {
			return nil, err
		}
		if live == nil || (u.GetKind() == "Namespace" && live.GetAnnotations()[createdHere] == "") {
			continue
		}
		found = append(found, live)
	}
	return found, nil
}

// inOrder puts the definition behind everything that works with it.
func inOrder(all []*unstructured.Unstructured) []*unstructured.Unstructured {
	slices.SortStableFunc(all, func(x, y *unstructured.Unstructured) int { return rank(x) - rank(y) })
	return all
}

func rank(u *unstructured.Unstructured) int {
	switch u.GetKind() {
	case "CustomResourceDefinition":
		return 1
	case "Namespace":
		return 2
	}
	return 0
}

// operatorsOwn is what no manifest names because the operator makes it.
func operatorsOwn() []*unstructured.Unstructured {
	secret, lease := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	secret.SetAPIVersion("v1")
	secret.SetKind("Secret")
	secret.SetName(v1alpha1.DefaultWebhookSecretName)
	lease.SetAPIVersion(coordinationv1.SchemeGroupVersion.String())
	lease.SetKind("Lease")
	lease.SetName(v1alpha1.DefaultResourceName)
	for _, u := range []*unstructured.Unstructured{secret, lease} {
		u.SetNamespace(namespaceName)
	}
	return []*unstructured.Unstructured{secret, lease}
}

// remove deletes the very object that was found. The definition goes only if
// there is still no set: one may have come since the first look.
func (o Options) remove(ctx context.Context, a applier, u *unstructured.Unstructured) error {
	if u.GetKind() == "CustomResourceDefinition" {
		if err := o.refuseWithSets(ctx, a); err != nil {
			return fmt.Errorf("a set was created meanwhile, so the definition stays: %w", err)
		}
	}
	options := []client.DeleteOption{client.Preconditions{UID: ptr.To(u.GetUID())}}
	if o.DryRun {
		options = append(options, client.DryRunAll)
	}
	err := a.client.Delete(ctx, u, options...)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete %s: %w", title(u), err)
	}
	o.say("%s deleted", title(u))
	return nil
}

// warnOfHolder tells of an operator that still runs. It would only complain, but
// its user should know.
func (o Options) warnOfHolder(ctx context.Context, a applier) {
	own := operatorsOwn()
	live, err := a.get(ctx, own[len(own)-1])
	if err != nil || live == nil {
		return
	}
	held := &coordinationv1.Lease{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, held); err != nil {
		return
	}
	if holder, is := lease.Of(held, time.Now()); is {
		o.say("an operator still runs as %s; stop it as well, unless its Deployment goes now", holder.Identity)
	}
}
