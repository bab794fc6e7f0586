package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// Uninstall deletes everything that install made and that the operator made for itself.
// Before it deletes anything, it refuses while LeaderWorkerSets exist (they would go with
// their definition), while PVCs need Lockstep, and while another implementation runs under
// our names.
func Uninstall(ctx context.Context, o Options) error {
	a, err := o.open()
	if err != nil {
		return err
	}
	layouts, err := o.layouts(ctx, a)
	if err != nil {
		return err
	}
	isWhole := slices.Contains(layouts, whole)
	if isWhole {
		if err := o.refuseRemoval(ctx, a); err != nil {
			return err
		}
	}
	w, err := o.withdrawal(ctx, a)
	if err != nil {
		return err
	}
	if !o.KeepProtection {
		if err := w.refuse(ctx); err != nil {
			return err
		}
	}
	doomed, err := o.doomed(ctx, a, layouts)
	if err != nil {
		return err
	}
	if len(doomed) == 0 && (len(w.found) == 0 || o.KeepProtection) {
		o.say("nothing to remove")
		return nil
	}
	if err := o.removeFrom(ctx, w, doomed); err != nil {
		return err
	}
	if o.KeepSets && isWhole {
		return o.reportKept(ctx, a)
	}
	return nil
}

// The layouts of an installation: for LeaderWorkerSets and PVCs, and for PVCs alone, which
// has names of its own.
const (
	whole = false
	alone = true
)

// layouts returns those that may be installed. Where Lockstep was installed for PVCs alone,
// the names of a whole installation are another implementation's.
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
	holders, err := o.holders(ctx)
	if err != nil {
		return err
	}
	for _, holder := range holders {
		if !holder.Ours() {
			return fmt.Errorf("another implementation runs in namespace %q: %s holds the lease, and what is installed under these names is its own; nothing was removed",
				holder.Namespace, holder.Identity)
		}
		o.say("an operator still runs as %s; stop it as well, unless its Deployment goes now", holder.Identity)
	}
	if o.KeepSets {
		return nil
	}
	return o.refuseWithSets(ctx, a)
}

func (o Options) refuseWithSets(ctx context.Context, a applier) error {
	names, more, err := o.sets(ctx, a)
	if unknownKind(err) || err == nil && len(names) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list LeaderWorkerSets: %w", err)
	}
	some := strings.Join(names, ", ")
	if more > 0 {
		some += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("LeaderWorkerSets exist (%s) and would be deleted with their definition; nothing was removed; "+
		"delete them first: kubectl delete leaderworkersets --all --all-namespaces; or leave them to another implementation: lockstep uninstall --keep-sets", some)
}

// removeFrom deletes everything in order: the policy for labels, the operator, protection,
// the rest. The operator stops before protection is taken off PVCs, which it would add
// again, and keeps its roles until then.
func (o Options) removeFrom(ctx context.Context, w *withdrawal, doomed []*unstructured.Unstructured) error {
	isOperator := func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" }
	isHook := func(u *unstructured.Unstructured) bool { return isWebhooks(u) && !o.KeepSets }
	if err := o.removeAll(ctx, w.applier, only(doomed, isPolicy)); err != nil {
		return err
	}
	stopOperator := func() error {
		// Webhooks refuse what an operator that stops no longer answers. With --keep-sets
		// they go last: a pod made without them lacks its labels.
		if err := o.removeAll(ctx, w.applier, slices.Concat(only(doomed, isHook), only(doomed, isOperator))); err != nil {
			return err
		}
		for _, u := range only(doomed, isOperator) {
			if err := o.awaitPods(ctx, w.applier, u.GetNamespace(), ""); err != nil {
				return err
			}
		}
		return nil
	}
	if err := w.end(ctx, stopOperator); err != nil {
		return err
	}
	rest := only(doomed, func(u *unstructured.Unstructured) bool { return !isPolicy(u) && !isOperator(u) && !isHook(u) })
	if err := o.removeAll(ctx, w.applier, rest); err != nil || o.DryRun {
		return err
	}
	for _, u := range doomed {
		if err := o.untilGone(ctx, w.applier, u); err != nil {
			return err
		}
	}
	return nil
}

func only(all []*unstructured.Unstructured, wanted func(*unstructured.Unstructured) bool) (some []*unstructured.Unstructured) {
	for _, u := range all {
		if wanted(u) {
			some = append(some, u)
		}
	}
	return some
}

// doomed returns the live objects to delete.
func (o Options) doomed(ctx context.Context, a applier, layouts []bool) (all []*unstructured.Unstructured, err error) {
	for _, layout := range layouts {
		some, err := everything(layout)
		if err != nil {
			return nil, err
		}
		all = append(all, only(some, func(u *unstructured.Unstructured) bool { return !o.KeepSets || layout != whole || rank(u) <= 1 })...)
	}
	return a.removable(ctx, all)
}

// removable returns the live ones of objects, but no namespace that install did not create.
// They are in the order of deletion: definitions after what uses them, a namespace last.
func (a applier) removable(ctx context.Context, objects []*unstructured.Unstructured) (found []*unstructured.Unstructured, err error) {
	for _, u := range objects {
		live, err := a.get(ctx, u)
		if err != nil {
			return nil, err
		}
		if live != nil && (u.GetKind() != "Namespace" || live.GetAnnotations()[createdHere] != "") {
			found = append(found, live)
		}
	}
	slices.SortStableFunc(found, func(x, y *unstructured.Unstructured) int { return rank(x) - rank(y) })
	return found, nil
}

// rank orders deletions. Roles go after what uses them.
func rank(u *unstructured.Unstructured) int {
	switch {
	case isWebhooks(u):
		return 1
	case u.GetKind() == "CustomResourceDefinition":
		return 2
	case u.GetKind() == "Namespace":
		return 3
	}
	return 0
}

// everything returns what an installation of one layout may consist of, and what the
// operator makes for itself. Protection is found by its labels instead.
func everything(protectOnly bool) ([]*unstructured.Unstructured, error) {
	s, err := Options{Image: "any", ProtectOnly: protectOnly}.shape(nil)
	if err != nil {
		return nil, err
	}
	all, err := s.manifests()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, ofProtection)
	slices.Reverse(all)
	all = append(all,
		object("v1", "Secret", s.namespace(), v1alpha1.DefaultWebhookSecretName),
		object(coordinationv1.SchemeGroupVersion.String(), "Lease", s.namespace(), v1alpha1.DefaultResourceName))
	if protectOnly {
		all = append(all, obsolete()...)
	}
	return all, nil
}

// obsolete returns what earlier versions installed for protection alone below Kubernetes
// 1.36, besides objects with the labels of protection: those are found by their labels.
func obsolete() []*unstructured.Unstructured {
	const rbac = "rbac.authorization.k8s.io/v1"
	namespace := standalone[namespaceName]
	return []*unstructured.Unstructured{
		object("v1", "Service", namespace, "lws-webhook-service"),
		object(rbac, "RoleBinding", namespace, "lws-certificates-rolebinding"),
		object(rbac, "Role", namespace, "lws-certificates-role"),
	}
}

// removeAll deletes the very objects that were found.
func (o Options) removeAll(ctx context.Context, a applier, objects []*unstructured.Unstructured) error {
	for _, u := range objects {
		if err := o.remove(ctx, a, u); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a definition only if there is still no set: one may have been created.
func (o Options) remove(ctx context.Context, a applier, u *unstructured.Unstructured) error {
	if u.GetKind() == "CustomResourceDefinition" {
		if err := o.refuseWithSets(ctx, a); err != nil {
			return fmt.Errorf("a set was created meanwhile, so the definition stays: %w", err)
		}
	}
	err := a.client.Delete(ctx, u, append(dry[client.DeleteOption](o.DryRun), client.Preconditions{UID: ptr.To(u.GetUID())})...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", title(u), err)
	}
	o.say("%s deleted", title(u))
	*a.removed++
	return nil
}

// reportKept reports what stays, and what of it only Lockstep reads.
func (o Options) reportKept(ctx context.Context, a applier) error {
	sets, err := a.count(ctx, lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"))
	if unknownKind(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("count LeaderWorkerSets: %w", err)
	}
	o.say("%d LeaderWorkerSets stay; until another implementation is installed nothing mends them, and pods made meanwhile lack their labels and variables", sets)
	past, err := a.count(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevisionList"}, client.HasLabels{lws.HistoryLabelKey})
	if err != nil {
		return fmt.Errorf("count revisions: %w", err)
	}
	if past > 0 {
		o.say("%d revisions that no group runs stay with their sets; only Lockstep reads them; to remove them: kubectl delete controllerrevisions --all-namespaces --selector %s", past, lws.HistoryLabelKey)
	}
	return nil
}

func (a applier) count(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) (int, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	err := a.client.List(ctx, list, options...)
	return len(list.Items), err
}
