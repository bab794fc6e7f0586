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
// stay, while claims on their way out rely on Lockstep to let them go, and while
// another implementation has taken our place.
func Uninstall(ctx context.Context, o Options) error {
	a, err := o.open()
	if err != nil {
		return err
	}
	layouts, err := o.layouts(ctx, a)
	if err != nil {
		return err
	}
	if slices.Contains(layouts, whole) {
		if err := o.refuseRemoval(ctx, a); err != nil {
			return err
		}
	}
	u, err := o.unprotection(ctx, a)
	if err != nil {
		return err
	}
	if !o.KeepProtection {
		if err := u.refuse(ctx); err != nil {
			return err
		}
	}
	doomed, err := o.doomed(ctx, a, layouts)
	if err != nil {
		return err
	}
	if err := o.removeFrom(ctx, u, doomed); err != nil {
		return err
	}
	if len(doomed) == 0 && (len(u.found) == 0 || o.KeepProtection) {
		o.say("nothing to remove")
		return nil
	}
	if o.KeepSets && slices.Contains(layouts, whole) {
		return o.tellOfKept(ctx, a)
	}
	return nil
}

// The layouts of an installation: for LeaderWorkerSets and claims, and for claims
// alone, which goes by names of its own.
const (
	whole = false
	alone = true
)

// layouts are those that there may be something of. Where Lockstep was installed for
// claims alone, what bears the names of a whole one is another's.
func (o Options) layouts(ctx context.Context, a applier) ([]bool, error) {
	isWhole, err := o.installed(ctx, a, "lws-manager-role")
	if err != nil {
		return nil, err
	}
	isAlone, err := o.installed(ctx, a, standalone["lws-proxy-role"])
	if err != nil || (isAlone && !isWhole) {
		return []bool{alone}, err
	}
	return []bool{alone, whole}, nil
}

func (o Options) refuseRemoval(ctx context.Context, a applier) error {
	if err := o.refuseOthers(ctx); err != nil {
		return err
	}
	if o.KeepSets {
		return nil
	}
	return o.refuseWithSets(ctx, a)
}

// removeFrom removes what is doomed. The operator stops before protection is taken
// off claims, which would be given it again, and keeps its rights until then.
func (o Options) removeFrom(ctx context.Context, u *unprotection, doomed []*unstructured.Unstructured) error {
	if len(doomed) > 0 {
		o.warnOfHolder(ctx, u.applier)
	}
	policies := 0
	for policies < len(doomed) && isPolicy(doomed[policies]) {
		policies++
	}
	if err := u.removeAll(ctx, doomed[:policies]); err != nil {
		return err
	}
	doomed = doomed[policies:]
	first := 1 + lastOf(doomed, "Deployment")
	stopOperator := func() error {
		if err := u.removeAll(ctx, doomed[:first]); err != nil {
			return err
		}
		for _, object := range doomed[:first] {
			if object.GetKind() == "Deployment" {
				if err := o.awaitPods(ctx, u.applier, object.GetNamespace(), ""); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := u.end(ctx, stopOperator); err != nil {
		return err
	}
	if err := u.removeAll(ctx, doomed[first:]); err != nil || o.DryRun {
		return err
	}
	for _, object := range doomed {
		if err := o.untilGone(ctx, u.applier, object); err != nil {
			return err
		}
	}
	return nil
}

// lastOf is where the last of a kind stands, or -1.
func lastOf(objects []*unstructured.Unstructured, kind string) int {
	for i, u := range slices.Backward(objects) {
		if u.GetKind() == kind {
			return i
		}
	}
	return -1
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
func (o Options) doomed(ctx context.Context, a applier, layouts []bool) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, layout := range layouts {
		objects, err := o.ofLayout(layout)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
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

// ofLayout is what an installation of one layout may consist of, in the order in
// which it goes.
func (o Options) ofLayout(protectOnly bool) ([]*unstructured.Unstructured, error) {
	all, err := everything(protectOnly)
	if err != nil {
		return nil, err
	}
	slices.Reverse(all)
	own := len(all) - 1 // before the namespace
	all = slices.Insert(all, own, operatorsOwn(Options{ProtectOnly: protectOnly}.namespace())...)
	if o.KeepSets && !protectOnly {
		all = keeping(all)
	}
	return all, nil
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
func operatorsOwn(namespace string) []*unstructured.Unstructured {
	secret, lease := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	secret.SetAPIVersion("v1")
	secret.SetKind("Secret")
	secret.SetName(v1alpha1.DefaultWebhookSecretName)
	lease.SetAPIVersion(coordinationv1.SchemeGroupVersion.String())
	lease.SetKind("Lease")
	lease.SetName(v1alpha1.DefaultResourceName)
	for _, u := range []*unstructured.Unstructured{secret, lease} {
		u.SetNamespace(namespace)
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
	*a.removed++
	return nil
}

// warnOfHolder tells of an operator that still runs. It would only complain, but
// its user should know.
func (o Options) warnOfHolder(ctx context.Context, a applier) {
	own := operatorsOwn(namespaceName)
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
