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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install/withdraw"
	"lockstep.dev/lockstep/internal/pvc"
)

// protectionKinds are the kinds of objects that protection consists of, in the order in
// which they go: what adds finalizers, what refuses, and what permits.
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

// withdrawal takes protection out of a cluster. It can be cut short anywhere and run again:
// the role, which remembers the mode, goes last.
type withdrawal struct {
	Options
	applier
	// found is all of protection in the cluster, whatever version installed it.
	found []*unstructured.Unstructured
	withdraw.Withdrawal
}

func (o Options) withdrawal(ctx context.Context, a applier) (*withdrawal, error) {
	w := &withdrawal{Options: o, applier: a, Withdrawal: withdraw.Withdrawal{
		Client: a.client, DryRun: o.DryRun, Patience: o.Timeout, Undress: pvc.Undress{KeepChoices: o.KeepChoices},
	}}
	for _, kind := range protectionKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(groupVersionOf(kind).WithKind(kind + "List"))
		err := a.client.List(ctx, list, client.MatchingLabels{nameLabel: "lockstep", componentLabel: protection})
		if err != nil && !unknownKind(err) {
			return nil, fmt.Errorf("list what protects PVCs: %w", err)
		}
		for i := range list.Items {
			w.found = append(w.found, &list.Items[i])
		}
	}
	w.Alone = slices.ContainsFunc(w.found, func(u *unstructured.Unstructured) bool {
		return u.GetName() == protectionRole && u.GetAnnotations()[aloneAnnotation] == "true"
	})
	return w, nil
}

// refuse returns an error while PVCs need protection.
func (w *withdrawal) refuse(ctx context.Context) error {
	if err := w.Blocked(ctx); err != nil {
		return fmt.Errorf("%w; nothing was removed; to leave them protected until Lockstep is installed again: lockstep uninstall --keep-protection", err)
	}
	return nil
}

// end ends protection, or leaves of it what needs no operator.
func (w *withdrawal) end(ctx context.Context, stopOperator func() error) error {
	if !w.KeepProtection {
		return w.run(ctx, stopOperator)
	}
	if err := w.removeAll(ctx, w.applier, only(w.found, isWebhooks)); err != nil {
		return err
	}
	if len(w.found) > 0 {
		w.say("claims stay protected; one that is deleted waits until Lockstep is installed again")
	}
	return stopOperator()
}

// run ends protection: first nothing adds finalizers any more, then the operator stops,
// then nothing refuses any more, and then PVCs lose what is ours.
func (w *withdrawal) run(ctx context.Context, stopOperator func() error) error {
	isRole := func(u *unstructured.Unstructured) bool {
		return u.GroupVersionKind().Group == "rbac.authorization.k8s.io"
	}
	if err := w.removeAll(ctx, w.applier, only(w.found, givesFinalizers)); err != nil {
		return err
	}
	if err := w.awaitNoFinalizers(ctx); err != nil {
		return err
	}
	if err := stopOperator(); err != nil {
		return err
	}
	refusing := only(w.found, func(u *unstructured.Unstructured) bool { return !givesFinalizers(u) && !isRole(u) })
	if err := w.removeAll(ctx, w.applier, refusing); err != nil {
		return err
	}
	stripped, err := w.Everything(ctx)
	if stripped != [4]int{} {
		w.say("protection taken off %d claims, %d volumes, %d namespaces and %d pods", stripped[0], stripped[1], stripped[2], stripped[3])
	}
	if err != nil {
		return fmt.Errorf("take protection off PVCs: %w", err)
	}
	return w.removeAll(ctx, w.applier, only(w.found, isRole))
}

// awaitNoFinalizers waits until a dry run shows that a new PVC gets no finalizer of ours:
// API servers learn late that a policy is gone. A refusal ends the wait: it would come
// again, and PVCs are read once more at the end.
func (w *withdrawal) awaitNoFinalizers(ctx context.Context) error {
	if w.Options.DryRun {
		return nil
	}
	return w.await(ctx, func(ctx context.Context) (string, error) {
		probe := probePVC()
		err := w.Client.Create(ctx, probe, client.DryRunAll)
		switch {
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err), apierrors.IsUnauthorized(err), apierrors.IsBadRequest(err):
			return "", nil
		case err != nil:
			return fmt.Sprintf("a dry run cannot show whether new PVCs still get %s: %v", pvc.BarrierFinalizer, err), nil
		case slices.Contains(probe.Finalizers, pvc.BarrierFinalizer):
			return fmt.Sprintf("new PVCs still get %s, though nothing installed by Lockstep adds it any more; "+
				"see other policies and webhooks: kubectl get mutatingadmissionpolicies,mutatingwebhookconfigurations", pvc.BarrierFinalizer), nil
		}
		return "", nil
	})
}

// probePVC returns a PVC that would get every finalizer. It is never created.
func probePVC() *corev1.PersistentVolumeClaim {
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

// awaitPods waits until no pod of the operator runs, except those of a configuration. An
// operator outside of the cluster is not seen here.
func (o Options) awaitPods(ctx context.Context, a applier, namespace, except string) error {
	if o.DryRun {
		return nil
	}
	return o.await(ctx, func(ctx context.Context) (string, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := a.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"control-plane": "controller-manager"})
		var names []string
		for _, pod := range list.Items {
			if except == "" || pod.Labels[configLabel] != except {
				names = append(names, pod.Name)
			}
		}
		if len(names) == 0 {
			return "", err
		}
		return fmt.Sprintf("pods of the operator still run in namespace %q: %q; wait for them to end, and run this again", namespace, names), nil
	})
}
