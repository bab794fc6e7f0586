package withdraw

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

	"lockstep.dev/lockstep/internal/pvc"
)

// Blocker is a PVC or volume that must not lose its protection yet, and why.
type Blocker struct {
	Object, Why string
	// settles reports that a built-in controller is about to end this.
	settles bool
}

// mostNamed bounds how many blockers an error names.
const mostNamed = 5

// blocked returns an error that names some blockers and counts the rest.
func blocked(what string, blockers []Blocker, remedy string) error {
	if len(blockers) == 0 {
		return nil
	}
	slices.SortFunc(blockers, func(x, y Blocker) int { return strings.Compare(x.Object, y.Object) })
	var names []string
	for _, b := range blockers[:min(len(blockers), mostNamed)] {
		names = append(names, fmt.Sprintf("%s (%s)", b.Object, b.Why))
	}
	text := strings.Join(names, ", ")
	if more := len(blockers) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s: %s; %s", what, text, remedy)
}

// Blocked returns an error while a PVC that is being deleted is in use, or a PVC in use
// would be deleted by the garbage collector without protection.
func (w Withdrawal) Blocked(ctx context.Context) error {
	leaving, err := w.settled(ctx)
	if err != nil {
		return err
	}
	if err := blockedLeaving(leaving); err != nil {
		return err
	}
	orphans, err := w.orphans(ctx)
	if err != nil {
		return err
	}
	return blocked("without Lockstep the garbage collector deletes PVCs in use", orphans,
		`to keep one: kubectl patch pvc NAME -n NAMESPACE --type=merge -p '`+pvc.Disown+
			`'; to let one go: wait for what uses it to end, or kubectl lockstep release pvc/NAME -n NAMESPACE, and delete it; then run this again`)
}

func blockedLeaving(leaving []Blocker) error {
	return blocked("PVCs are being deleted and need Lockstep to go", leaving,
		"wait for the pods that use them to end, or delete these, and run this again; to see the holders: kubectl lockstep why pvc/NAME -n NAMESPACE")
}

func (w Withdrawal) awaitLeaving(ctx context.Context) error {
	leaving, err := w.leaving(ctx)
	if err != nil {
		return err
	}
	return blockedLeaving(leaving)
}

// settled returns the PVCs that are being deleted, once the built-in controller has had
// time to remove its finalizer.
func (w Withdrawal) settled(ctx context.Context) ([]Blocker, error) {
	for deadline := time.Now().Add(w.Patience); ; time.Sleep(pause) {
		left, err := w.leaving(ctx)
		settles := slices.ContainsFunc(left, func(b Blocker) bool { return b.settles })
		if err != nil || !settles || time.Now().After(deadline) {
			return left, err
		}
	}
}

// leaving removes one finalizer from each PVC that is being deleted and not in use. It
// returns the PVCs and volumes that still rely on us.
func (w Withdrawal) leaving(ctx context.Context) (left []Blocker, err error) {
	byNamespace := map[string][]*corev1.PersistentVolumeClaim{}
	err = w.each(ctx, &corev1.PersistentVolumeClaimList{}, func(o client.Object) error {
		if w.Relies(o) {
			byNamespace[o.GetNamespace()] = append(byNamespace[o.GetNamespace()], o.(*corev1.PersistentVolumeClaim))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for namespace, claims := range byNamespace {
		stay, err := w.release(ctx, namespace, claims)
		if err != nil {
			return nil, err
		}
		left = append(left, stay...)
	}
	if !w.Alone {
		return left, nil
	}
	err = w.each(ctx, &corev1.PersistentVolumeList{}, func(o client.Object) error {
		if volume := o.(*corev1.PersistentVolume); isKept(volume) {
			left = append(left, Blocker{Object: "volume " + volume.Name, Why: "is bound"})
		}
		return nil
	})
	return left, err
}

// isKept reports whether a volume that is being deleted is still bound.
func isKept(volume *corev1.PersistentVolume) bool {
	return volume.DeletionTimestamp != nil && volume.Status.Phase == corev1.VolumeBound && slices.Contains(volume.Finalizers, pvc.VolumeFinalizer)
}

// release judges PVCs by pods that are read after them.
func (w Withdrawal) release(ctx context.Context, namespace string, claims []*corev1.PersistentVolumeClaim) ([]Blocker, error) {
	var pods []*corev1.Pod
	seen := pvc.NewIndex()
	err := w.each(ctx, &corev1.PodList{}, func(o client.Object) error {
		pods = append(pods, o.(*corev1.Pod))
		seen.See(o.(*corev1.Pod))
		return nil
	}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	releases, kept := pvc.Settings{Alone: w.Alone}.Take(namespace, claims).Look(func(_ string, see func(*corev1.Pod)) error {
		for _, pod := range pods {
			see(pod)
		}
		return nil
	}).Judge()
	stay := map[types.UID]Blocker{}
	for _, claim := range claims {
		stay[claim.UID] = blockerOf(claim, seen.Holding(claim), nil)
	}
	for _, k := range kept {
		if k.Err != nil {
			return nil, fmt.Errorf("read who uses PVC %s/%s: %w; what to do: kubectl lockstep why pvc/%[2]s -n %[1]s", k.Claim.Namespace, k.Claim.Name, k.Err)
		}
		stay[k.Claim.UID] = blockerOf(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: k.Claim.Namespace, Name: k.Claim.Name}}, k.Users, k.Recorded)
	}
	for _, r := range releases {
		last, err := w.releaseOne(ctx, r)
		if err != nil {
			return nil, err
		}
		if last {
			delete(stay, r.Target().UID)
		}
	}
	var left []Blocker
	for _, b := range stay {
		left = append(left, b)
	}
	return left, nil
}

func blockerOf(claim *corev1.PersistentVolumeClaim, uses []pvc.Use, recorded pvc.Record) Blocker {
	var names []string
	for _, use := range uses {
		names = append(names, "pod "+use.Pod.Name)
	}
	for _, pod := range recorded {
		names = append(names, "pod "+pod.Name)
	}
	slices.Sort(names)
	b := Blocker{Object: claim.Namespace + "/" + claim.Name, Why: "used by " + strings.Join(slices.Compact(names), ", ")}
	if len(names) == 0 {
		b.Why, b.settles = "waits for kubernetes.io/pvc-protection", true
	}
	return b
}

// releaseOne removes one finalizer, and reports whether it was our last. If a policy still
// guards it, the holders go first: they hold no PVC that is being deleted.
func (w Withdrawal) releaseOne(ctx context.Context, r pvc.Release) (last bool, err error) {
	claim, target := &corev1.PersistentVolumeClaim{}, r.Target()
	claim.Namespace, claim.Name, claim.UID, claim.ResourceVersion = target.Namespace, target.Name, target.UID, target.ResourceVersion
	done, err := w.write(ctx, claim, patch{"metadata": map[string]any{"finalizers": append([]string{}, r.Finalizers()...)}})
	if isRefused(err) {
		_, err := w.write(ctx, claim, patch{"metadata": map[string]any{"annotations": map[string]any{pvc.HoldersAnnotation: nil}}})
		return false, err
	}
	return done && (w.DryRun || !slices.Contains(r.Finalizers(), pvc.BarrierFinalizer)), err
}

// orphans returns the held PVCs whose owners are gone, or wait for what they own. Only our
// refusal keeps the garbage collector from deleting them.
func (w Withdrawal) orphans(ctx context.Context) (orphans []Blocker, err error) {
	err = w.each(ctx, &corev1.PersistentVolumeClaimList{}, func(o client.Object) error {
		claim := o.(*corev1.PersistentVolumeClaim)
		holders := pvc.HeldAndOwned(claim)
		if holders == "" {
			return nil
		}
		for _, owner := range claim.OwnerReferences {
			stays, err := w.stays(ctx, claim.Namespace, owner)
			if err != nil {
				return fmt.Errorf("read %s %q, which owns PVC %q: %w", owner.Kind, owner.Name, claim.Namespace+"/"+claim.Name, err)
			}
			if stays {
				return nil
			}
		}
		orphans = append(orphans, Blocker{
			Object: claim.Namespace + "/" + claim.Name,
			Why:    fmt.Sprintf("in use by %s; %s, which owned it, is gone or waits for it", holders, pvc.OwnersOf(claim)),
		})
		return nil
	})
	return orphans, err
}

// stays reports whether an owner exists and is not being deleted in the foreground. The
// garbage collector ignores owners of kinds that are not served.
func (w Withdrawal) stays(ctx context.Context, namespace string, o metav1.OwnerReference) (bool, error) {
	found := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: o.APIVersion, Kind: o.Kind}}
	err := w.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: o.Name}, found)
	switch {
	case meta.IsNoMatchError(err):
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	waits := found.DeletionTimestamp != nil && slices.Contains(found.Finalizers, metav1.FinalizerDeleteDependents)
	return found.UID == o.UID && !waits, nil
}
