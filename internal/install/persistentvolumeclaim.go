package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/pvc"
)

// refuse returns an error while a PVC that is being deleted is in use, or a PVC in use
// would be deleted by the garbage collector without protection.
func (r *removal) refuse(ctx context.Context) error {
	var names []string
	for _, find := range []func(context.Context) ([]string, error){r.release, r.orphans, r.boundVolumes} {
		found, err := find(ctx)
		if err != nil {
			return err
		}
		names = append(names, found...)
	}
	return blocked("PVCs need Lockstep", names, "nothing was removed; wait for what uses them to end; to see the holders: "+
		"kubectl lockstep why pvc/NAME -n NAMESPACE; to keep a PVC whose owner is gone: kubectl patch pvc NAME -n NAMESPACE --type=merge -p '"+pvc.Disown+
		"'; to leave them protected until Lockstep is installed again: lockstep uninstall --keep-protection")
}

// release removes one finalizer from each PVC that is being deleted and that no pod uses, as
// the operator does. It returns the PVCs in use.
func (r *removal) release(ctx context.Context) (inUse []string, err error) {
	byNamespace := map[string][]*corev1.PersistentVolumeClaim{}
	err = r.each(ctx, &corev1.PersistentVolumeClaimList{}, func(o client.Object) error {
		if r.ours.Relies(o) {
			byNamespace[o.GetNamespace()] = append(byNamespace[o.GetNamespace()], o.(*corev1.PersistentVolumeClaim))
		}
		return nil
	})
	for namespace, claims := range byNamespace {
		kept, err := r.releaseIn(ctx, namespace, claims)
		if err != nil {
			return nil, fmt.Errorf("release PVCs of namespace %q: %w", namespace, err)
		}
		for _, k := range kept {
			inUse = append(inUse, namespace+"/"+k.Claim.Name+" (is being deleted)")
		}
	}
	return inUse, err
}

// releaseIn judges PVCs by pods that are read after them. PVCs that the built-in controller
// keeps are judged as well, and not written.
func (r *removal) releaseIn(ctx context.Context, namespace string, claims []*corev1.PersistentVolumeClaim) ([]pvc.Kept, error) {
	live := pvc.Settings{Alone: true}.Take(namespace, claims).Look(func(_ string, see func(*corev1.Pod)) error {
		return r.each(ctx, &corev1.PodList{}, func(o client.Object) error {
			see(o.(*corev1.Pod))
			return nil
		}, client.InNamespace(namespace))
	})
	releases, kept := live.Judge()
	for _, release := range releases {
		if release.Takes() == pvc.PodsFinalizer && !r.ours.Alone {
			continue
		}
		read := claims[slices.IndexFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return c.UID == release.Target().UID })]
		next := read.DeepCopy()
		next.Finalizers = release.Finalizers()
		if err := r.patch(ctx, read, next); err != nil && !isPassing(err) {
			return nil, err
		}
		r.stripped++
	}
	return kept, live.Err()
}

// boundVolumes returns the volumes that are being deleted and bound, where no built-in controller keeps them.
func (r *removal) boundVolumes(ctx context.Context) (names []string, err error) {
	if !r.ours.Alone {
		return nil, nil
	}
	err = r.each(ctx, &corev1.PersistentVolumeList{}, func(o client.Object) error {
		if isBound(o.(*corev1.PersistentVolume)) {
			names = append(names, "volume "+o.GetName()+" (is bound)")
		}
		return nil
	})
	return names, err
}

// isBound reports whether a volume that is being deleted has our finalizer and is bound.
func isBound(volume *corev1.PersistentVolume) bool {
	return volume.DeletionTimestamp != nil && volume.Status.Phase == corev1.VolumeBound && slices.Contains(volume.Finalizers, pvc.VolumeFinalizer)
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

// settle is how long API servers may take to learn that a policy is gone: they read policies
// once a second. Until then new PVCs get our finalizers.
const settle = 3 * time.Second

// stripAll removes what is ours from PVCs, volumes, namespaces and pods. A PVC that is
// deleted meanwhile goes by the protocol, or is named in the error.
func (r *removal) stripAll(ctx context.Context) error {
	if r.deleted > 0 {
		time.Sleep(settle)
	}
	total, stripped := 0, []any{}
	for _, list := range []client.ObjectList{&corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolumeList{}, &corev1.NamespaceList{}, &corev1.PodList{}} {
		var options []client.ListOption
		if _, isPods := list.(*corev1.PodList); isPods {
			options = append(options, client.MatchingFields{"spec.nodeName": ""}) // only such a pod has gates
		}
		count, err := r.strip(ctx, list, r.stripObject, options...)
		if err != nil {
			return fmt.Errorf("take protection off PVCs: %w", err)
		}
		total, stripped = total+count, append(stripped, count)
	}
	if r.stripped += total; total > 0 {
		r.say("protection taken off %d PVCs, %d volumes, %d namespaces and %d pods", stripped...)
	}
	return nil
}

// freePods lets the pods of groups go that exhausted maxGroupRestarts: no operator is left to lift
// their finalizer. The StatefulSets of such groups create them again.
func (r *removal) freePods(ctx context.Context) error {
	freed, err := r.strip(ctx, &corev1.PodList{}, func(o client.Object) bool {
		return controllerutil.RemoveFinalizer(o, lwsv1.GroupRestartBudgetFinalizer)
	}, client.HasLabels{lwsv1.SetNameLabelKey})
	if err != nil {
		return fmt.Errorf("let pods go that were kept as evidence: %w", err)
	}
	if r.stripped += freed; freed > 0 {
		r.say("finalizer removed from %d pods of stopped groups", freed)
	}
	return nil
}

// strip makes passes until one finds nothing that change removes. An object that changed is read
// again, and so is one that a policy guards: API servers learn late of its removal.
func (r *removal) strip(ctx context.Context, list client.ObjectList, change func(client.Object) bool, options ...client.ListOption) (int, error) {
	done := map[types.UID]bool{}
	err := r.await(ctx, func(ctx context.Context) (missing string, err error) {
		if _, isPVCs := list.(*corev1.PersistentVolumeClaimList); isPVCs {
			if _, err := r.release(ctx); err != nil {
				return "", err
			}
		}
		err = r.each(ctx, list, func(o client.Object) error {
			if r.ours.Relies(o) {
				missing = named(o) + " is being deleted and needs Lockstep; to see the holders: kubectl lockstep why pvc/NAME -n NAMESPACE"
			}
			next := o.DeepCopyObject().(client.Object)
			if !change(next) {
				return nil
			}
			if done[o.GetUID()] {
				return fmt.Errorf("%s got back what was removed: an operator still runs; stop it, and run this again", named(o))
			}
			err := r.patch(ctx, o, next)
			if err != nil && !isPassing(err) {
				return err
			}
			if err == nil {
				done[o.GetUID()] = true
			}
			missing = fmt.Sprintf("%s has what Lockstep wrote (%v)", named(o), err)
			return nil
		}, options...)
		return missing, err
	})
	return len(done), err
}

// stripObject removes what is ours from an object in memory, and reports whether there was any.
// A volume that is being deleted keeps our finalizer while it is bound.
func (r *removal) stripObject(o client.Object) bool {
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		return r.ours.Alone && !isBound(o) && controllerutil.RemoveFinalizer(o, pvc.VolumeFinalizer)
	case *corev1.Pod:
		gates, isGated := len(o.Spec.SchedulingGates), r.frees && workload.IsGated(o)
		o.Spec.SchedulingGates = slices.DeleteFunc(o.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool {
			return pvc.IsOurGate(gate.Name) || isGated && gate.Name == lwsv1.GroupReplacementGate
		})
		if isGated && o.Annotations[corev1.PodDeletionCost] == admission.GatedDeletionCost {
			delete(o.Annotations, corev1.PodDeletionCost)
		}
		return len(o.Spec.SchedulingGates) < gates
	}
	return r.ours.Strip(o)
}

// patch writes the version that was read.
func (r *removal) patch(ctx context.Context, read, next client.Object) error {
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
