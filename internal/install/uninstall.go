package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/pvc"
)

// Uninstall deletes everything that install made and that the operator made for itself.
// Before it deletes anything, it refuses while LeaderWorkerSets exist (they would go with
// their definition), while PVCs need Lockstep, and while another implementation runs under
// our names.
func Uninstall(ctx context.Context, o Options) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	found, err := c.installed(ctx)
	if err != nil {
		return err
	}
	// Beside protection alone, the names of a whole installation are another's.
	isWhole := has(found, managerRole) || !has(found, standalone[proxyRole])
	r := c.removal(slices.DeleteFunc(found, func(u *unstructured.Unstructured) bool {
		return !isWhole && !isStandalone(u) || !o.removes(u)
	}))
	r.strips = !o.KeepProtection
	if err := r.refuseUninstall(ctx, isWhole); err != nil {
		return err
	}
	if len(r.doomed) == 0 {
		o.say("nothing to remove")
		return nil
	}
	if err := r.run(ctx); err != nil || o.DryRun {
		return err
	}
	for _, u := range r.doomed {
		if err := c.untilGone(ctx, u); err != nil {
			return err
		}
	}
	if o.KeepSets && isWhole {
		return c.reportKept(ctx)
	}
	return nil
}

// removes reports whether an uninstallation removes an object. Protection that is kept
// loses the webhook of an earlier version: it needs the operator.
func (o Options) removes(u *unstructured.Unstructured) bool {
	isKept := u.GetKind() == "CustomResourceDefinition" || u.GetKind() == "Namespace" && u.GetName() == namespaceName
	return (!o.KeepSets || !isKept) && (!o.KeepProtection || !ofProtection(u) || isWebhooks(u))
}

func (r *removal) refuseUninstall(ctx context.Context, isWhole bool) error {
	if isWhole {
		if err := r.refuseForeign(ctx); err != nil {
			return err
		}
		if !r.KeepSets {
			if err := r.refuseWithSets(ctx); err != nil {
				return err
			}
		}
	}
	if r.KeepProtection {
		return nil
	}
	if err := r.refuseRunning(ctx, isWhole); err != nil {
		return err
	}
	return r.refuse(ctx)
}

// refuseRunning refuses while an operator runs whose Deployment stays, as one applied from
// manifests: it would protect PVCs again.
func (r *removal) refuseRunning(ctx context.Context, isWhole bool) error {
	names := []string{standalone[namespaceName], standalone[deploymentName]}
	if isWhole {
		names = append(names, namespaceName, deploymentName)
	}
	var running []string
	for pair := range slices.Chunk(names, 2) {
		u := object("apps/v1", "Deployment", pair[0], pair[1])
		live, err := r.get(ctx, u)
		if err != nil {
			return err
		}
		isDoomed := slices.ContainsFunc(r.doomed, func(d *unstructured.Unstructured) bool { return isSame(u, d) })
		if live == nil || isDoomed {
			continue
		}
		if replicas, ok, _ := unstructured.NestedInt64(live.Object, "spec", "replicas"); !ok || replicas > 0 {
			running = append(running, pair[0]+"/"+pair[1])
		}
	}
	return blocked("Deployments that install did not write run the operator", running,
		"nothing was removed; delete them first: kubectl delete deployment NAME -n NAMESPACE")
}

// removal deletes objects of an installation. It can be interrupted anywhere and run again.
type removal struct {
	*cluster
	// found are all objects that an installation left, and doomed those to delete.
	found, doomed []*unstructured.Unstructured
	// strips makes it take protection off PVCs.
	strips bool
	// operators are the namespaces where the operator's pods end, except those of a
	// configuration.
	operators []string
	except    string
	undress   pvc.Removal
}

func (c *cluster) removal(doomed []*unstructured.Unstructured) *removal {
	r := &removal{cluster: c, doomed: doomed, undress: pvc.Removal{KeepChoices: c.KeepChoices}}
	for _, u := range doomed {
		if u.GetKind() == "Deployment" {
			r.operators = append(r.operators, u.GetNamespace())
		}
		if u.GetName() == protectionRole && u.GetAnnotations()[aloneAnnotation] == "true" {
			r.undress.Alone = true
		}
	}
	return r
}

// The phases of a removal. The operator stops before protection is taken off PVCs, which it
// would add again, and keeps its roles until then. Webhooks refuse what an operator that
// stops no longer answers. With KeepSets they go late: a pod made without them lacks its
// labels.
const (
	labelsPhase = iota
	finalizersPhase
	operatorPhase
	refusalsPhase
	rolesPhase
	webhooksPhase
	definitionPhase
	namespacePhase
	phases
)

func (o Options) phaseOf(u *unstructured.Unstructured) int {
	switch kind := u.GetKind(); {
	case isLabelPolicy(u):
		return labelsPhase
	case givesFinalizers(u):
		return finalizersPhase
	case kind == "Deployment", isWebhooks(u) && !o.KeepSets:
		return operatorPhase
	case isWebhooks(u):
		return webhooksPhase
	case ofProtection(u) && u.GroupVersionKind().Group == "admissionregistration.k8s.io":
		return refusalsPhase
	case kind == "CustomResourceDefinition":
		return definitionPhase
	case kind == "Namespace":
		return namespacePhase
	}
	return rolesPhase
}

// run deletes everything in order. The role that remembers whether protection was alone goes
// after PVCs were stripped.
func (r *removal) run(ctx context.Context) error {
	for phase := range phases {
		for _, u := range r.doomed {
			if r.phaseOf(u) != phase {
				continue
			}
			if err := r.delete(ctx, u); err != nil {
				return err
			}
		}
		if err := r.after(ctx, phase); err != nil {
			return err
		}
	}
	return nil
}

// after completes a phase.
func (r *removal) after(ctx context.Context, phase int) error {
	switch {
	case phase == finalizersPhase && r.strips && !r.DryRun:
		return r.untilNoFinalizers(ctx)
	case phase == operatorPhase && !r.DryRun:
		for _, namespace := range r.operators {
			if err := r.untilStopped(ctx, namespace, r.except); err != nil {
				return err
			}
		}
	case phase == refusalsPhase && r.strips:
		return r.stripAll(ctx)
	case phase == refusalsPhase && r.KeepProtection:
		r.say("PVCs stay protected; one that is deleted waits until Lockstep is installed again")
	}
	return nil
}

// delete deletes the very object that was found, but a definition only if there is still no
// set: one may have been created.
func (r *removal) delete(ctx context.Context, u *unstructured.Unstructured) error {
	if u.GetKind() == "CustomResourceDefinition" {
		if err := r.refuseWithSets(ctx); err != nil {
			return fmt.Errorf("a set was created meanwhile, so the definition stays: %w", err)
		}
	}
	err := r.client.Delete(ctx, u, append(dry[client.DeleteOption](r.DryRun), client.Preconditions{UID: ptr.To(u.GetUID())})...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", title(u), err)
	}
	r.say("%s deleted", title(u))
	r.deleted++
	return nil
}

func (c *cluster) refuseWithSets(ctx context.Context) error {
	sets, err := c.list(ctx, setList)
	if err != nil && !unknownKind(err) {
		return fmt.Errorf("list LeaderWorkerSets: %w", err)
	}
	var names []string
	for _, set := range sets {
		names = append(names, set.Namespace+"/"+set.Name)
	}
	return blocked("LeaderWorkerSets exist and would be deleted with their definition", names, "nothing was removed; "+
		"delete them first: kubectl delete leaderworkersets --all --all-namespaces; or leave them to another implementation: lockstep uninstall --keep-sets")
}

// installed returns what install wrote into the cluster, whatever version it had, and what
// the operator made for itself. A namespace that install did not create is not in it.
func (c *cluster) installed(ctx context.Context) (found []*unstructured.Unstructured, err error) {
	s, err := Options{Image: "any"}.shape(nil)
	if err != nil {
		return nil, err
	}
	all, err := s.manifests()
	if err != nil {
		return nil, err
	}
	own := append(s.madeByOperator(), Options{ProtectOnly: true}.madeByOperator()...)
	kinds := map[schema.GroupVersionKind]bool{}
	for _, u := range all {
		if kinds[u.GroupVersionKind()] = true; u.GetKind() == "CustomResourceDefinition" {
			own = append(own, u) // that of an earlier version has no label
		}
	}
	for _, u := range own {
		live, err := c.get(ctx, u)
		if err != nil {
			return nil, err
		}
		if live != nil && (u.GetKind() != "CustomResourceDefinition" || isOurs(live)) {
			found = append(found, live)
		}
	}
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), func(x, y schema.GroupVersionKind) int { return strings.Compare(y.Kind, x.Kind) }) {
		some, err := c.labelled(ctx, kind)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// labelled returns the objects of one kind that bear our labels. Another implementation
// has the label of LeaderWorkerSets as well.
func (c *cluster) labelled(ctx context.Context, kind schema.GroupVersionKind) (found []*unstructured.Unstructured, err error) {
	for _, name := range []string{standaloneLabel, setsLabel} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.client.List(ctx, list, client.MatchingLabels{nameLabel: name}); err != nil && !unknownKind(err) {
			return nil, fmt.Errorf("list what is installed: %w", err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			isMade := kind.Kind != "Namespace" || u.GetAnnotations()[createdHere] != ""
			if isMade && (isOurs(u) || ofProtection(u) && isPolicyOrRole(u)) {
				found = append(found, u)
			}
		}
	}
	return found, nil
}

// isPolicyOrRole reports whether labels alone show that an object is ours. A user may copy
// them into any other kind.
func isPolicyOrRole(u *unstructured.Unstructured) bool {
	switch u.GetKind() {
	case "ClusterRole", "ClusterRoleBinding":
		return true
	}
	return u.GroupVersionKind().Group == "admissionregistration.k8s.io"
}

// madeByOperator returns what the operator makes for itself.
func (o Options) madeByOperator() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		object("v1", "Secret", o.namespace(), v1alpha1.DefaultWebhookSecretName),
		object(coordinationv1.SchemeGroupVersion.String(), "Lease", o.namespace(), v1alpha1.DefaultResourceName),
	}
}

// reportKept reports what stays, and what of it only Lockstep reads.
func (c *cluster) reportKept(ctx context.Context) error {
	sets, err := c.list(ctx, setList)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	c.say("%d LeaderWorkerSets stay; until another implementation is installed nothing repairs them, and pods made meanwhile lack their labels and variables", len(sets))
	past, err := c.list(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevisionList"}, client.HasLabels{lws.HistoryLabelKey})
	if err == nil && len(past) > 0 {
		c.say("%d revisions that no group runs stay with their sets; only Lockstep reads them; to remove them: kubectl delete controllerrevisions --all-namespaces --selector %s", len(past), lws.HistoryLabelKey)
	}
	return err
}

func has(all []*unstructured.Unstructured, role string) bool {
	return slices.ContainsFunc(all, func(u *unstructured.Unstructured) bool { return u.GetKind() == "ClusterRole" && u.GetName() == role })
}

func isSame(x, y *unstructured.Unstructured) bool {
	return title(x) == title(y) && x.GetNamespace() == y.GetNamespace()
}
