package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lease"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

// Uninstall deletes everything that install made and that the operator made for itself. Before it deletes anything, it
// refuses while sets exist (they would go with their definition), while PVCs need Lockstep, and while
// another implementation runs under our names.
func Uninstall(ctx context.Context, o Options) error {
	c, err := o.open()
	if err != nil {
		return err
	}
	found, err := c.installed(ctx)
	if err != nil {
		return err
	}
	foreign, err := c.foreign(ctx)
	if err != nil {
		return err
	}
	if foreign != nil && has(found, managerRole) {
		return fmt.Errorf("another implementation runs in namespace %q: %s holds the lease, and what is installed under these names is its own; nothing was removed",
			foreign.Namespace, foreign.Identity)
	}
	// Beside protection alone, or another implementation, the names of a whole installation are another's.
	isWhole := has(found, managerRole) || foreign == nil && !has(found, standaloneProxyRole)
	budgets, err := c.list(ctx, policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), // they would keep drains waiting
		client.MatchingLabels{workload.ManagedByLabelKey: workload.ManagedByValue}, client.HasLabels{lwsv1.SetNameLabelKey})
	for i := range budgets {
		found = append(found, &budgets[i])
	}
	if err != nil {
		return err
	}
	r := c.removal(found, func(u *unstructured.Unstructured) bool { return (isWhole || isStandalone(u)) && o.removes(u) })
	r.strips, r.frees = !o.KeepProtection, isWhole
	switch {
	case !isWhole:
	case o.KeepSets:
		err = c.sayOnlyHere(ctx)
	default:
		err = r.refuseWithSets(ctx)
	}
	if err == nil && r.strips {
		err = r.refuse(ctx)
	}
	if err == nil && (len(r.toDelete) > 0 || r.strips) { // Helm, or kubectl, may have deleted all objects
		err = r.run(ctx)
	}
	if err != nil {
		return err
	}
	if r.deleted+r.stripped == 0 && (!o.DryRun || !r.strips) {
		o.say("nothing to remove")
	}
	for i := 0; err == nil && !o.DryRun && i < len(r.toDelete); i++ {
		err = c.untilGone(ctx, r.toDelete[i])
	}
	return err
}

// removes reports whether an uninstallation removes an object. Protection that is kept
// loses the webhook of an earlier version: it needs the operator.
func (o Options) removes(u *unstructured.Unstructured) bool {
	isKept := isDefinition(u) || u.GetKind() == "Namespace" && u.GetName() == namespaceName
	return (!o.KeepSets || !isKept) && (!o.KeepProtection || !ofProtection(u) || strings.HasSuffix(u.GetKind(), "WebhookConfiguration"))
}

// foreign returns an operator of another implementation that runs, or nil.
func (c *cluster) foreign(ctx context.Context) (*lease.Holder, error) {
	holders, err := c.holders(ctx)
	if err != nil {
		return nil, err
	}
	for _, holder := range holders {
		if !holder.Ours() {
			return &holder, nil
		}
		c.say("an operator still runs as %s; stop it as well, unless its Deployment goes now", holder.Identity)
	}
	return nil, nil
}

// setKinds are the kinds of sets, and of scalers: one whose set left without it stays.
var setKinds = []schema.GroupVersionKind{dsv1.GroupVersion.WithKind("DisaggregatedSet"), lwsv1.GroupVersion.WithKind("LeaderWorkerSet"), dsv1.GroupVersion.WithKind("DisaggregatedSetRoleScaler")}

func (c *cluster) refuseWithSets(ctx context.Context) error {
	var names []string
	for _, kind := range setKinds {
		sets, err := c.list(ctx, kind)
		if err != nil {
			return err
		}
		for _, set := range sets {
			names = append(names, set.GetNamespace()+"/"+set.GetName())
		}
	}
	return blocked("LeaderWorkerSets, DisaggregatedSets or their scalers exist and would be deleted with their definitions", names, "nothing was removed; "+
		"delete them first: kubectl delete disaggregatedsets,leaderworkersets,disaggregatedsetrolescalers --all --all-namespaces; or leave them to another implementation: lockstep uninstall --keep-sets")
}

// sayOnlyHere names the kept sets whose changes another implementation refuses.
func (c *cluster) sayOnlyHere(ctx context.Context) error {
	sets, err := c.list(ctx, setKinds[1])
	for _, set := range sets {
		identity, _, _ := unstructured.NestedString(set.Object, "spec", "groupIdentity")
		_, isLimited, _ := unstructured.NestedFieldNoCopy(set.Object, "spec", "leaderWorkerTemplate", "maxGroupRestarts")
		if isLimited && identity == string(lwsv1.HashGroupIdentity) {
			c.say("another implementation refuses every change of %s/%s, which has maxGroupRestarts with groupIdentity Hash: remove maxGroupRestarts, from the role if a DisaggregatedSet owns it", set.GetNamespace(), set.GetName())
		}
	}
	return err
}

// removal deletes objects of an installation. It can be interrupted anywhere and run again.
type removal struct {
	*cluster
	// found are all objects that an installation left, and toDelete those to delete.
	found, toDelete []*unstructured.Unstructured
	// strips makes it take protection off PVCs, and stripped counts what lost it.
	strips   bool
	stripped int
	// frees makes it let go the pods that the operator keeps as evidence, and leaders lose their gates.
	frees bool
	// operators are the namespaces where the operator's pods end, except those of a configuration.
	operators []string
	except    string
	// ours is what goes from PVCs, namespaces and volumes.
	ours pvc.Settings
}

func (c *cluster) removal(found []*unstructured.Unstructured, goes func(*unstructured.Unstructured) bool) *removal {
	r := &removal{cluster: c, found: found}
	for _, u := range found {
		if !goes(u) {
			continue
		}
		r.toDelete = append(r.toDelete, u)
		if u.GetKind() == "Deployment" {
			r.operators = append(r.operators, u.GetNamespace())
		}
		if u.GetName() == protectionRole && u.GetAnnotations()[aloneAnnotation] == "true" {
			r.ours.Alone = true
		}
	}
	return r
}

// Objects are deleted in these phases. First goes the policy that protects labels: the next implementation, or a user,
// must be free to write them. Roles and webhooks go after PVCs were stripped: one role remembers whether protection was
// alone, and webhooks without an operator refuse new pods of sets, which would lack labels.
const (
	labelsPhase = iota
	finalizersPhase
	operatorPhase
	refusalsPhase
	rolesPhase
	definitionPhase
	namespacePhase
	phases
)

func phaseOf(u *unstructured.Unstructured) int {
	switch {
	case u.GetName() == "lockstep-labels":
		return labelsPhase
	case strings.HasPrefix(u.GetKind(), "Mutating") && ofProtection(u): // it adds finalizers to new PVCs
		return finalizersPhase
	case u.GetKind() == "Deployment":
		return operatorPhase
	case ofProtection(u) && u.GroupVersionKind().Group == "admissionregistration.k8s.io":
		return refusalsPhase
	case isDefinition(u):
		return definitionPhase
	case u.GetKind() == "Namespace":
		return namespacePhase
	}
	return rolesPhase
}

// run deletes everything in order.
func (r *removal) run(ctx context.Context) error {
	for phase := range phases {
		for _, u := range r.toDelete {
			if phaseOf(u) != phase {
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
	case r.DryRun && phase == refusalsPhase && r.strips:
		r.say("PVCs, volumes, namespaces and pods lose what Lockstep wrote")
	case r.DryRun:
	case phase == operatorPhase:
		if err := r.untilStopped(ctx); err != nil || !r.frees {
			return err
		}
		return r.freePods(ctx)
	case phase == refusalsPhase && r.strips:
		return r.stripAll(ctx)
	case phase == refusalsPhase && r.KeepProtection:
		r.say("PVCs stay protected; one that is deleted waits until Lockstep is installed again")
	}
	return nil
}

// untilStopped waits until no pod of the operator runs, except those of a configuration.
// An operator outside of the cluster is not seen here.
func (r *removal) untilStopped(ctx context.Context) error {
	for _, namespace := range r.operators {
		if err := r.await(ctx, func(ctx context.Context) (string, error) {
			pods, err := r.list(ctx, corev1.SchemeGroupVersion.WithKind("Pod"),
				client.InNamespace(namespace), client.MatchingLabels{"control-plane": "controller-manager"})
			var names []string
			for _, pod := range pods {
				if r.except == "" || pod.GetLabels()[configLabel] != r.except {
					names = append(names, pod.GetName())
				}
			}
			if err != nil || len(names) == 0 {
				return "", err
			}
			return fmt.Sprintf("pods of the operator still run in namespace %q: %q; wait for them to end, and run this again", namespace, names), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes the very object that was found, but a definition only if there is still no
// set: one may have been created.
func (r *removal) delete(ctx context.Context, u *unstructured.Unstructured) error {
	if isDefinition(u) {
		if err := r.refuseWithSets(ctx); err != nil {
			return fmt.Errorf("a set was created meanwhile, so the definition stays: %w", err)
		}
	}
	err := r.client.Delete(ctx, u, client.Preconditions{UID: ptr.To(u.GetUID())})
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

// installed returns what install wrote into the cluster, whatever version it had, and what
// the operator made for itself. A namespace that install did not create is not in it.
func (c *cluster) installed(ctx context.Context) (found []*unstructured.Unstructured, err error) {
	s := must(Options{Image: "any"}.shape(nil))
	own, kinds := append(s.besides(), Options{ProtectOnly: true}.besides()...), []schema.GroupVersionKind{}
	for _, u := range slices.Backward(s.manifests()) { // bindings before policies
		if isDefinition(u) {
			own = append(own, u) // that of an earlier version has no label
		}
		if !slices.Contains(kinds, u.GroupVersionKind()) {
			kinds = append(kinds, u.GroupVersionKind())
		}
	}
	for _, u := range own {
		live, err := Live(ctx, c.client, u)
		if err != nil {
			return nil, err
		}
		switch {
		case live == nil, isDefinition(u) && !isOurs(live): // another implementation's
		case u.GetName() == certs.AuthoritySecret && live.GetLabels()[nameLabel] == "": // a user's: installers label theirs
		default:
			found = append(found, live)
		}
	}
	// Another implementation has the label of LeaderWorkerSets as well.
	named := must(labels.Parse(nameLabel + " in (" + standaloneLabel + ", " + setsLabel + ")"))
	for _, kind := range kinds {
		all, err := c.list(ctx, kind, client.MatchingLabelsSelector{Selector: named})
		if err != nil {
			return nil, err
		}
		for _, u := range all {
			isMade := kind.Kind != "Namespace" || u.GetAnnotations()[createdHere] != ""
			if isMade && (isOurs(&u) || ofProtection(&u) && isPolicyOrRole(&u)) {
				found = append(found, &u)
			}
		}
	}
	return found, nil
}

// isPolicyOrRole reports whether labels alone show that an object is ours. A user may copy them into any other kind.
func isPolicyOrRole(u *unstructured.Unstructured) bool {
	return strings.HasPrefix(u.GetKind(), "ClusterRole") || u.GroupVersionKind().Group == "admissionregistration.k8s.io"
}

// besides returns what an installation has besides its manifests.
func (o Options) besides() []*unstructured.Unstructured {
	byDefault := must(operator.ParseConfig(nil))
	return []*unstructured.Unstructured{
		Bare("v1", "Secret", o.namespace(), certs.AuthoritySecret),
		Bare("v1", "Secret", o.namespace(), v1alpha1.DefaultWebhookSecretName),
		Bare(coordinationv1.SchemeGroupVersion.String(), "Lease", o.namespace(), operator.LeaseName(byDefault, o.ProtectOnly)),
	}
}

func has(all []*unstructured.Unstructured, role string) bool {
	return isIn(Bare("rbac.authorization.k8s.io/v1", "ClusterRole", "", role), all)
}

// isIn reports whether a list has an object of this kind and name.
func isIn(u *unstructured.Unstructured, all []*unstructured.Unstructured) bool {
	return slices.ContainsFunc(all, func(x *unstructured.Unstructured) bool {
		return title(u) == title(x) && u.GetNamespace() == x.GetNamespace()
	})
}
