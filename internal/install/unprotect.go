package install

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install/withdraw"
	"lockstep.dev/lockstep/internal/pvc"
)

// protectionKinds are what protection is made of, in the order in which it is
// taken away: what gives finalizers, what refuses, and what permits. Some are not
// known to older API servers.
var protectionKinds = []string{
	"MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingWebhookConfiguration",
	"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy",
	"ClusterRoleBinding", "ClusterRole",
}

func groupVersionOf(kind string) schema.GroupVersion {
	if kind == "ClusterRole" || kind == "ClusterRoleBinding" {
		return schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	}
	return schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
}

// protected is what there is of protection in the cluster, whatever version
// brought it, in the order in which it goes.
func (o Options) protected(ctx context.Context, a applier) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for _, kind := range protectionKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(groupVersionOf(kind).WithKind(kind + "List"))
		err := a.client.List(ctx, list, client.MatchingLabels{nameLabel: "lockstep", componentLabel: protection})
		if unknownKind(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for what protects claims: %w", err)
		}
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	return found, nil
}

// dropStale removes what another version or another configuration needed and
// this one does not.
func (o Options) dropStale(ctx context.Context, a applier, wanted []*unstructured.Unstructured) error {
	found, err := o.protected(ctx, a)
	if err != nil {
		return err
	}
	for _, u := range found {
		if slices.ContainsFunc(wanted, func(w *unstructured.Unstructured) bool { return title(w) == title(u) }) {
			continue
		}
		if err := o.remove(ctx, a, u); err != nil {
			return err
		}
	}
	return nil
}

// unprotection takes protection out of a cluster. It can be cut short anywhere and
// taken up again: what it needs to know goes last.
type unprotection struct {
	Options
	applier
	found []*unstructured.Unstructured
	withdraw.Withdrawal
}

func (o Options) unprotection(ctx context.Context, a applier) (*unprotection, error) {
	found, err := o.protected(ctx, a)
	if err != nil {
		return nil, err
	}
	typed, err := withdraw.Connect(o.REST)
	if err != nil {
		return nil, err
	}
	return &unprotection{Options: o, applier: a, found: found, Withdrawal: withdraw.Withdrawal{
		Client:   typed,
		Undress:  pvc.Undress{Alone: wasAlone(found), KeepChoices: o.KeepChoices},
		DryRun:   o.DryRun,
		Patience: o.Timeout,
	}}, nil
}

func wasAlone(found []*unstructured.Unstructured) bool {
	return slices.ContainsFunc(found, func(u *unstructured.Unstructured) bool {
		return u.GetName() == protectionRole && u.GetAnnotations()[aloneAnnotation] == "true"
	})
}

// refuse names claims on their way out that nobody would let go any more, and those in
// use that nobody would keep.
func (u *unprotection) refuse(ctx context.Context) error {
	left, err := u.Settled(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return untouched(&withdraw.LeftError{Claims: left})
	}
	orphans, err := u.Orphans(ctx)
	if err != nil || len(orphans) == 0 {
		return err
	}
	return untouched(&withdraw.OrphanError{Claims: orphans})
}

func untouched(err error) error {
	return fmt.Errorf("%w; nothing was removed; to leave them protected until Lockstep is installed again: lockstep uninstall --keep-protection", err)
}

// end ends protection, or leaves behind of it what needs no operator.
func (u *unprotection) end(ctx context.Context, stopOperator func() error) error {
	if !u.KeepProtection {
		return u.run(ctx, stopOperator)
	}
	for _, object := range u.found {
		if isWebhooks(object) {
			if err := u.remove(ctx, u.applier, object); err != nil {
				return err
			}
		}
	}
	if len(u.found) > 0 {
		u.say("claims stay protected; one whose deletion is asked for waits until Lockstep is installed again")
	}
	return stopOperator()
}

// run ends protection: first nothing gives finalizers any more, then the operator
// stops, then nothing refuses any more, and then claims are undressed.
func (u *unprotection) run(ctx context.Context, stopOperator func() error) error {
	givers, others, roles := u.parts()
	if err := u.removeAll(ctx, givers); err != nil {
		return err
	}
	if err := u.awaitNoGift(ctx); err != nil {
		return err
	}
	if err := stopOperator(); err != nil {
		return err
	}
	if err := u.removeAll(ctx, others); err != nil {
		return err
	}
	report, err := u.Everything(ctx)
	if report.Objects() > 0 {
		u.say("protection taken off %d claims, %d volumes, %d namespaces and %d pods", report.Claims, report.Volumes, report.Namespaces, report.Pods)
	}
	if report.Conditions > 0 {
		u.say("condition Unused taken off %d claims", report.Conditions)
	}
	if err != nil {
		return fmt.Errorf("take protection off claims: %w", err)
	}
	return u.removeAll(ctx, roles)
}

func (u *unprotection) parts() (givers, others, roles []*unstructured.Unstructured) {
	for _, object := range u.found {
		switch {
		case givesFinalizers(object):
			givers = append(givers, object)
		case object.GroupVersionKind().Group == "rbac.authorization.k8s.io":
			roles = append(roles, object)
		default:
			others = append(others, object)
		}
	}
	return givers, others, roles
}

func (u *unprotection) removeAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := u.remove(ctx, u.applier, object); err != nil {
			return err
		}
	}
	return nil
}

// awaitNoGift waits until the API server has forgotten what gave finalizers: a
// claim that is born meanwhile would keep them. It is asked even where nothing was
// installed: policies that are loaded from files are no objects. An API server that is
// not well is asked again. Where claims cannot be asked for at all that tells nothing, and
// claims are looked at once more in the end.
func (u *unprotection) awaitNoGift(ctx context.Context) error {
	if u.Options.DryRun {
		return nil
	}
	given, silent := false, false
	err := wait.PollUntilContextTimeout(ctx, glance, u.Timeout, true, func(ctx context.Context) (bool, error) {
		probe := probeClaim()
		switch err := u.Client.Create(ctx, probe, client.DryRunAll); {
		case err == nil:
			given, silent = slices.Contains(probe.Finalizers, pvc.BarrierFinalizer), false
			return !given, nil
		case ctx.Err() != nil:
			return false, nil // cut off by the end of the wait, it tells nothing either
		default:
			silent = true
			return neverAnswers(err), nil
		}
	})
	if wait.Interrupted(err) && ctx.Err() == nil && silent && !given {
		return nil
	}
	if wait.Interrupted(err) {
		return fmt.Errorf("claims still get %s after %s, though nothing installed by Lockstep gives it any more; look for policies and webhooks of others: kubectl get mutatingadmissionpolicies,mutatingwebhookconfigurations; and for policies that API servers load from files (lockstep install --static-policies), which have to be taken from there first", pvc.BarrierFinalizer, u.Timeout)
	}
	return err
}

// neverAnswers tells whether a claim that is asked for would be refused for this again.
func neverAnswers(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err)
}

// probeClaim is one that would get every finalizer there is. It is never made.
func probeClaim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, GenerateName: "lockstep-probe-",
			Annotations: map[string]string{pvc.ModeKey: pvc.Barrier.String()},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

// awaitPods waits until no pod of the operator runs on but those of the
// configuration given; of none, where it is empty. An operator outside of the
// cluster is not seen here: it gives itself away by what it gives.
func (o Options) awaitPods(ctx context.Context, a applier, namespace, but string) error {
	if o.DryRun {
		return nil
	}
	var names []string
	err := wait.PollUntilContextTimeout(ctx, glance, o.Timeout, true, func(ctx context.Context) (bool, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := a.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"control-plane": "controller-manager"})
		names = nil
		for _, pod := range list.Items {
			if but == "" || pod.Labels[configLabel] != but {
				names = append(names, pod.Name)
			}
		}
		return len(names) == 0, err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("pods of the operator still run in namespace %q after %s: %q; wait for them to end, and run this again", namespace, o.Timeout, names)
	}
	return err
}
