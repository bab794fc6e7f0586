package install

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

const (
	// page is how many objects are read at a time.
	page = 500
	// mostNamed bounds how many objects an error names.
	mostNamed = 5
)

// blocked returns an error that names some objects and counts the rest.
func blocked(what string, names []string, remedy string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), mostNamed)], ", ")
	if more := len(names) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s: %s; %s", what, text, remedy)
}

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

// leaving reads the PVCs that are being deleted and rely on us. It returns those in use,
// and how many others remain. If it writes, it removes one finalizer from each PVC that is
// not in use, as the operator does.
func (r *removal) leaving(ctx context.Context, write bool) (inUse []string, remain int, err error) {
	byNamespace := map[string][]*corev1.PersistentVolumeClaim{}
	err = r.each(ctx, &corev1.PersistentVolumeClaimList{}, func(o client.Object) error {
		if r.undress.Relies(o) {
			byNamespace[o.GetNamespace()] = append(byNamespace[o.GetNamespace()], o.(*corev1.PersistentVolumeClaim))
		}
		return nil
	})
	for namespace, claims := range byNamespace {
		if err != nil {
			return nil, 0, err
		}
		names, rest := []string(nil), 0
		names, rest, err = r.release(ctx, namespace, claims, write)
		inUse, remain = append(inUse, names...), remain+rest
	}
	if err != nil || !r.undress.Alone {
		return inUse, remain, err
	}
	err = r.each(ctx, &corev1.PersistentVolumeList{}, func(o client.Object) error {
		if volume := o.(*corev1.PersistentVolume); isKept(volume) {
			inUse = append(inUse, "volume "+volume.Name+" (is bound)")
		}
		return nil
	})
	return inUse, remain, err
}

// isKept reports whether a volume that is being deleted is still bound.
func isKept(volume *corev1.PersistentVolume) bool {
	return volume.DeletionTimestamp != nil && volume.Status.Phase == corev1.VolumeBound && slices.Contains(volume.Finalizers, pvc.VolumeFinalizer)
}

// release judges PVCs by pods that are read after them.
func (r *removal) release(ctx context.Context, namespace string, claims []*corev1.PersistentVolumeClaim, write bool) (inUse []string, remain int, err error) {
	// A PVC that the built-in controller keeps is not judged, but its pods are named too.
	seen, pods := pvc.NewIndex(), []*corev1.Pod(nil)
	err = r.each(ctx, &corev1.PodList{}, func(o client.Object) error {
		pods = append(pods, o.(*corev1.Pod))
		seen.See(o.(*corev1.Pod))
		return nil
	}, client.InNamespace(namespace))
	releases, kept := pvc.Settings{Alone: r.undress.Alone}.Take(namespace, claims).Look(func(_ string, see func(*corev1.Pod)) error {
		for _, pod := range pods {
			see(pod)
		}
		return err
	}).Judge()
	recorded := map[types.UID]pvc.Record{}
	for _, k := range kept {
		if k.Err != nil {
			return nil, 0, fmt.Errorf("read what uses PVC %s/%s: %w; what to do: kubectl lockstep why pvc/%[2]s -n %[1]s", namespace, k.Claim.Name, k.Err)
		}
		recorded[k.Claim.UID] = k.Recorded
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the pods of namespace %q: %w", namespace, err)
	}
	for _, claim := range claims {
		if pods := podsOf(seen.Holding(claim), recorded[claim.UID]); len(pods) > 0 {
			inUse = append(inUse, fmt.Sprintf("%s/%s (used by %s)", namespace, claim.Name, strings.Join(pods, ", ")))
		}
	}
	remain = len(claims) - len(inUse)
	for _, release := range releases {
		if !write {
			break
		}
		done, err := r.patch(ctx, claimOf(release), patch{"metadata": map[string]any{"finalizers": append([]string{}, release.Finalizers()...)}})
		if err != nil && !isRefused(err) {
			return nil, 0, err
		}
		if done && !slices.Contains(release.Finalizers(), pvc.BarrierFinalizer) {
			remain--
		}
	}
	return inUse, remain, nil
}

func claimOf(r pvc.Release) *corev1.PersistentVolumeClaim {
	t := r.Target()
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name, UID: t.UID, ResourceVersion: t.ResourceVersion}}
}

func podsOf(uses []pvc.Use, recorded pvc.Record) (names []string) {
	for _, use := range uses {
		names = append(names, "pod "+use.Pod.Name)
	}
	for _, pod := range recorded {
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
		orphans = append(orphans, fmt.Sprintf("%s/%s (in use by %s; %s, which owned it, is gone or waits for it)", claim.Namespace, claim.Name, holders, pvc.OwnersOf(claim)))
		return nil
	})
	return orphans, err
}

// stays reports whether an owner exists and is not being deleted in the foreground. The
// garbage collector ignores owners of kinds that are not served.
func (r *removal) stays(ctx context.Context, namespace string, o metav1.OwnerReference) (bool, error) {
	found := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: o.APIVersion, Kind: o.Kind}}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: o.Name}, found)
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

// patch is a JSON merge patch.
type patch map[string]any

// stripAll removes what is ours from PVCs, volumes, namespaces and pods. A PVC that is
// deleted meanwhile goes by the protocol, or is named in the error.
func (r *removal) stripAll(ctx context.Context) error {
	gated := client.MatchingFields{"spec.nodeName": ""}
	var stripped []any
	for _, s := range []struct {
		list    client.ObjectList
		off     func(client.Object) patch
		options []client.ListOption
	}{
		{list: &corev1.PersistentVolumeClaimList{}, off: r.metadata},
		{list: &corev1.PersistentVolumeList{}, off: r.volume},
		{list: &corev1.NamespaceList{}, off: r.metadata},
		{list: &corev1.PodList{}, off: gates, options: []client.ListOption{gated}},
	} {
		count, err := r.strip(ctx, s.list, s.off, s.options...)
		if err != nil {
			return fmt.Errorf("take protection off PVCs: %w", err)
		}
		stripped = append(stripped, count)
	}
	if slices.ContainsFunc(stripped, func(count any) bool { return count != 0 }) {
		r.say("protection taken off %d PVCs, %d volumes, %d namespaces and %d pods", stripped...)
	}
	return nil
}

// strip makes passes until one finds nothing to remove. An object that changed is read
// again, and so is one that a policy guards: API servers learn late of its removal.
func (r *removal) strip(ctx context.Context, list client.ObjectList, off func(client.Object) patch, options ...client.ListOption) (int, error) {
	done := map[types.UID]bool{}
	err := r.await(ctx, func(ctx context.Context) (missing string, err error) {
		if _, isPVCs := list.(*corev1.PersistentVolumeClaimList); isPVCs {
			if missing, err = r.awaited(ctx); err != nil {
				return "", err
			}
		}
		err = r.each(ctx, list, func(o client.Object) error {
			off := off(o)
			if off == nil {
				return nil
			}
			if done[o.GetUID()] {
				return fmt.Errorf("%s got back what was removed: an operator still runs and protects; stop it, and run this again", named(o))
			}
			written, err := r.patch(ctx, o, off)
			if err != nil && !isRefused(err) {
				return err
			}
			if done[o.GetUID()] = written; !r.DryRun {
				missing = fmt.Sprintf("%s has what Lockstep wrote (%v)", named(o), err)
			}
			return nil
		}, options...)
		return missing, err
	})
	maps.DeleteFunc(done, func(_ types.UID, written bool) bool { return !written })
	return len(done), err
}

// awaited releases PVCs, and returns those that are still being deleted.
func (r *removal) awaited(ctx context.Context) (string, error) {
	inUse, remain, err := r.leaving(ctx, !r.DryRun)
	if err != nil || r.DryRun || remain+len(inUse) == 0 {
		return "", err
	}
	return fmt.Sprintf("PVCs are being deleted and need Lockstep to go: %d unused, and %q in use; to see the holders: kubectl lockstep why pvc/NAME -n NAMESPACE", remain, inUse), nil
}

// metadata returns the patch that removes our finalizers, annotations and labels from a PVC
// or namespace.
func (r *removal) metadata(o client.Object) patch {
	off, metadata := r.undress.Of(o), patch{}
	if _, is := o.(*corev1.PersistentVolumeClaim); is && off.Takes {
		metadata["finalizers"] = append([]string{}, off.Finalizers...)
	}
	for field, keys := range map[string][]string{"annotations": off.Annotations, "labels": off.Labels} {
		gone := map[string]any{}
		for _, key := range keys {
			gone[key] = nil
		}
		if len(gone) > 0 {
			metadata[field] = gone
		}
	}
	if len(metadata) == 0 {
		return nil
	}
	return patch{"metadata": map[string]any(metadata)}
}

// volume returns the patch that removes our finalizer where no built-in controller keeps
// volumes. A volume that is being deleted keeps it while it is bound.
func (r *removal) volume(o client.Object) patch {
	if !r.undress.Alone || !slices.Contains(o.GetFinalizers(), pvc.VolumeFinalizer) || isKept(o.(*corev1.PersistentVolume)) {
		return nil
	}
	stay := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == pvc.VolumeFinalizer })
	return patch{"metadata": map[string]any{"finalizers": stay}}
}

// gates returns the patch that removes our scheduling gates from a pod.
func gates(o client.Object) patch {
	gates := o.(*corev1.Pod).Spec.SchedulingGates
	isOurs := func(gate corev1.PodSchedulingGate) bool { return pvc.IsOurGate(gate.Name) }
	if !slices.ContainsFunc(gates, isOurs) {
		return nil
	}
	return patch{"spec": map[string]any{"schedulingGates": slices.DeleteFunc(slices.Clone(gates), isOurs)}}
}

// isRefused reports whether an admission policy refused a write.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "AdmissionPolicy")
}

// patch patches the very version that was read. It reports false, and no error, if the
// object has changed or is gone.
func (r *removal) patch(ctx context.Context, read client.Object, change patch) (bool, error) {
	if r.DryRun {
		return true, nil
	}
	metadata := map[string]any{"uid": read.GetUID(), "resourceVersion": read.GetResourceVersion()}
	if more, ok := change["metadata"].(map[string]any); ok {
		maps.Copy(metadata, more)
	}
	change["metadata"] = metadata
	text, err := json.Marshal(change)
	if err != nil {
		return false, err
	}
	err = r.client.Patch(ctx, read, client.RawPatch(types.MergePatchType, text))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func named(o client.Object) string {
	kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."))
	return kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/")
}

// each reads a list page by page. If a page expires, the rest is unknown: an error.
func (c *cluster) each(ctx context.Context, list client.ObjectList, see func(client.Object) error, options ...client.ListOption) error {
	for token := ""; ; {
		if err := c.client.List(ctx, list, append(slices.Clone(options), client.Limit(page), client.Continue(token))...); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error { return see(o.DeepCopyObject().(client.Object)) })
		if err != nil {
			return err
		}
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}
