package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"lockstep.dev/lockstep/internal/pvc"
)

// refuse returns an error while a PVC that is being deleted is in use, or a PVC in use
// would be deleted by the garbage collector without protection.
func (r *removal) refuse(ctx context.Context) error {
	names, _, err := r.leaving(ctx, false)
	if err != nil {
		return err
	}
	orphans, err := r.orphans(ctx)
	if err != nil {
		return err
	}
	return blocked("PVCs need Lockstep", append(names, orphans...), "nothing was removed; wait for what uses them to end; to see the holders: "+
		"kubectl lockstep why pvc/NAME -n NAMESPACE; to keep a PVC whose owner is gone: kubectl patch pvc NAME -n NAMESPACE --type=merge -p '"+pvc.Disown+
		"'; to leave them protected until Lockstep is installed again: lockstep uninstall --keep-protection")
}

// leaving reads the PVCs that are being deleted and rely on us, and the volumes. It returns
// those in use, and how many other PVCs remain. If it writes, it removes one finalizer from
// each PVC that is not in use, as the operator does.
func (r *removal) leaving(ctx context.Context, write bool) (inUse []string, remain int, err error) {
	byNamespace := map[string][]*corev1.PersistentVolumeClaim{}
	err = r.each(ctx, &corev1.PersistentVolumeClaimList{}, func(o client.Object) error {
		if r.ours.Relies(o) {
			byNamespace[o.GetNamespace()] = append(byNamespace[o.GetNamespace()], o.(*corev1.PersistentVolumeClaim))
		}
		return nil
	})
	for namespace, claims := range byNamespace {
		names, rest, err := r.release(ctx, namespace, claims, write)
		if err != nil {
			return nil, 0, err
		}
		inUse, remain = append(inUse, names...), remain+rest
	}
	if err != nil || !r.ours.Alone {
		return inUse, remain, err
	}
	err = r.each(ctx, &corev1.PersistentVolumeList{}, func(o client.Object) error {
		if isBound(o.(*corev1.PersistentVolume)) {
			inUse = append(inUse, "volume "+o.GetName()+" (is bound)")
		}
		return nil
	})
	return inUse, remain, err
}

// isBound reports whether a volume that is being deleted has our finalizer and is bound.
func isBound(volume *corev1.PersistentVolume) bool {
	return volume.DeletionTimestamp != nil && volume.Status.Phase == corev1.VolumeBound && slices.Contains(volume.Finalizers, pvc.VolumeFinalizer)
}

// release judges PVCs by pods that are read after them. PVCs that the built-in controller
// keeps are judged as well, to name their pods, and not written.
func (r *removal) release(ctx context.Context, namespace string, claims []*corev1.PersistentVolumeClaim, write bool) (inUse []string, remain int, err error) {
	releases, kept := pvc.Settings{Alone: true}.Take(namespace, claims).Look(func(_ string, see func(*corev1.Pod)) error {
		return r.each(ctx, &corev1.PodList{}, func(o client.Object) error {
			see(o.(*corev1.Pod))
			return nil
		}, client.InNamespace(namespace))
	}).Judge()
	for _, k := range kept {
		if k.Err != nil && !r.ours.Alone && slices.Contains(withUID(claims, k.Claim.UID).Finalizers, pvc.PodsFinalizer) {
			continue // the built-in controller keeps it, whatever the use record says
		}
		if k.Err != nil {
			return nil, 0, fmt.Errorf("read what uses PVC %s/%s: %w; what to do: kubectl lockstep why pvc/%[2]s -n %[1]s", namespace, k.Claim.Name, k.Err)
		}
		inUse = append(inUse, fmt.Sprintf("%s/%s (used by %s)", namespace, k.Claim.Name, strings.Join(podsOf(k), ", ")))
	}
	remain = len(releases)
	for _, release := range releases {
		if !write || release.Takes() == pvc.PodsFinalizer && !r.ours.Alone {
			continue
		}
		read := withUID(claims, release.Target().UID)
		next := read.DeepCopy()
		next.Finalizers = release.Finalizers()
		switch err := r.patch(ctx, read, next); {
		case err == nil && !r.ours.Relies(next):
			remain--
		case err != nil && !isPassing(err):
			return nil, 0, err
		}
	}
	return inUse, remain, nil
}

// withUID returns one of the PVCs, which must be there.
func withUID(claims []*corev1.PersistentVolumeClaim, uid types.UID) *corev1.PersistentVolumeClaim {
	return claims[slices.IndexFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return c.UID == uid })]
}

// podsOf names the pods that use a PVC, or that its use record names.
func podsOf(k pvc.Kept) (names []string) {
	for _, use := range k.Users {
		names = append(names, "pod "+use.Pod.Name)
	}
	for _, pod := range k.Recorded {
		names = append(names, "pod "+pod.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// orphans returns the held PVCs whose owners are gone, or wait for what they own. Only our
// refusal keeps the garbage collector from deleting them.
func (r *removal) orphans(ctx context.Context) (orphans []string, err error) {
	err = r.each(ctx, &corev1.PersistentVolumeClaimList{}, func(o client.Object) error {
		claim := o.(*corev1.PersistentVolumeClaim)
		holders := pvc.HeldAndOwned(claim)
		if holders == "" {
			return nil
		}
		for _, owner := range claim.OwnerReferences {
			stays, err := r.stays(ctx, claim.Namespace, owner)
			if err != nil {
				return fmt.Errorf("read %s %q, which owns PVC %q: %w", owner.Kind, owner.Name, claim.Namespace+"/"+claim.Name, err)
			}
			if stays {
				return nil
			}
		}
		orphans = append(orphans, fmt.Sprintf("%s/%s (in use by %s; %s, which owned it, is gone or waits for it)",
			claim.Namespace, claim.Name, holders, pvc.OwnersOf(claim)))
		return nil
	})
	return orphans, err
}

// stays reports whether an owner exists and is not being deleted in the foreground. The
// garbage collector ignores owners of kinds that are not served.
func (r *removal) stays(ctx context.Context, namespace string, o metav1.OwnerReference) (bool, error) {
	found := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: o.APIVersion, Kind: o.Kind}}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: o.Name}, found)
	if meta.IsNoMatchError(err) {
		return true, nil
	}
	waits := found.DeletionTimestamp != nil && slices.Contains(found.Finalizers, metav1.FinalizerDeleteDependents)
	return err == nil && found.UID == o.UID && !waits, client.IgnoreNotFound(err)
}

// untilNoFinalizers waits until a dry run shows that a new PVC gets no finalizer of ours:
// API servers learn late that a policy is gone. A refusal ends the wait: it would come
// again, and PVCs are read once more at the end.
func (r *removal) untilNoFinalizers(ctx context.Context) error {
	return r.await(ctx, func(ctx context.Context) (string, error) {
		probe := probePVC()
		err := r.client.Create(ctx, probe, client.DryRunAll)
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

// stripAll removes what is ours from PVCs, volumes, namespaces and pods. A PVC that is
// deleted meanwhile goes by the protocol, or is named in the error.
func (r *removal) stripAll(ctx context.Context) error {
	total, stripped := 0, []any{}
	for _, list := range []client.ObjectList{&corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolumeList{}, &corev1.NamespaceList{}, &corev1.PodList{}} {
		count, err := r.strip(ctx, list)
		if err != nil {
			return fmt.Errorf("take protection off PVCs: %w", err)
		}
		total, stripped = total+count, append(stripped, count)
	}
	if total > 0 {
		r.say("protection taken off %d PVCs, %d volumes, %d namespaces and %d pods", stripped...)
	}
	return nil
}

// strip makes passes until one finds nothing to remove. An object that changed is read
// again, and so is one that a policy guards: API servers learn late of its removal.
func (r *removal) strip(ctx context.Context, list client.ObjectList) (int, error) {
	done, options := map[types.UID]bool{}, []client.ListOption{}
	if _, isPods := list.(*corev1.PodList); isPods {
		options = append(options, client.MatchingFields{"spec.nodeName": ""}) // only such a pod has gates
	}
	err := r.await(ctx, func(ctx context.Context) (missing string, err error) {
		if _, isPVCs := list.(*corev1.PersistentVolumeClaimList); isPVCs && !r.DryRun {
			if missing, err = r.awaited(ctx); err != nil {
				return "", err
			}
		}
		err = r.each(ctx, list, func(o client.Object) error {
			next := o.DeepCopyObject().(client.Object)
			if !r.undress(next) {
				return nil
			}
			if done[o.GetUID()] {
				return fmt.Errorf("%s got back what was removed: an operator still runs and protects; stop it, and run this again", named(o))
			}
			err := r.patch(ctx, o, next)
			if err != nil && !isPassing(err) {
				return err
			}
			if err == nil {
				done[o.GetUID()] = true
			}
			if !r.DryRun {
				missing = fmt.Sprintf("%s has what Lockstep wrote (%v)", named(o), err)
			}
			return nil
		}, options...)
		return missing, err
	})
	return len(done), err
}

// awaited releases PVCs, and describes those that are still being deleted.
func (r *removal) awaited(ctx context.Context) (string, error) {
	inUse, remain, err := r.leaving(ctx, true)
	if err != nil || remain+len(inUse) == 0 {
		return "", err
	}
	return fmt.Sprintf("PVCs are being deleted and need Lockstep to go: %d unused, and %q in use; to see the holders: kubectl lockstep why pvc/NAME -n NAMESPACE", remain, inUse), nil
}

// undress removes what is ours from an object in memory, and reports whether there was any.
// A volume that is being deleted keeps our finalizer while it is bound.
func (r *removal) undress(o client.Object) bool {
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		return r.ours.Alone && !isBound(o) && controllerutil.RemoveFinalizer(o, pvc.VolumeFinalizer)
	case *corev1.Pod:
		gates := len(o.Spec.SchedulingGates)
		o.Spec.SchedulingGates = slices.DeleteFunc(o.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return pvc.IsOurGate(gate.Name) })
		return len(o.Spec.SchedulingGates) < gates
	}
	off := r.ours.Of(o)
	o.SetFinalizers(off.Finalizers)
	for _, key := range off.Annotations {
		delete(o.GetAnnotations(), key)
	}
	for _, key := range off.Labels {
		delete(o.GetLabels(), key)
	}
	return !off.Empty()
}

// patch writes the version that was read.
func (r *removal) patch(ctx context.Context, read, next client.Object) error {
	if r.DryRun {
		return nil
	}
	return r.client.Patch(ctx, next, client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{}))
}

// isPassing reports whether a later pass may succeed: the object has changed, or is gone, or
// an API server still knows a policy that is gone.
func isPassing(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "AdmissionPolicy")
}

func named(o client.Object) string {
	kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."))
	return kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/")
}
