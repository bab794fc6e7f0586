// Package withdraw takes the protection of PVCs back, so that nothing is left in a cluster
// that only Lockstep would ever remove.
//
// It knows PVCs, volumes, the pods that use them, namespaces and gated pods. It needs no
// operator: it follows the operator's protocol for PVCs that are being deleted. It refuses
// to know which policies exist: its caller has removed them.
package withdraw

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

const (
	// pause is the time between two passes.
	pause = 200 * time.Millisecond
	// page is how many objects are read at a time.
	page = 500
)

// Withdrawal takes protection off one cluster.
type Withdrawal struct {
	// Client reads live and writes.
	Client client.Client
	pvc.Undress
	// DryRun decides, and writes nothing.
	DryRun bool
	// Patience bounds every wait.
	Patience time.Duration
}

// Everything strips PVCs, volumes, namespaces and pods until a pass finds nothing of ours,
// and returns how many of each it stripped. A PVC that is deleted meanwhile goes by the
// protocol, or is named in the error.
func (w Withdrawal) Everything(ctx context.Context) (stripped [4]int, err error) {
	for i, s := range []subject{
		{list: &corev1.PersistentVolumeClaimList{}, off: w.metadata, await: w.awaitLeaving},
		{list: &corev1.PersistentVolumeList{}, off: w.volume},
		{list: &corev1.NamespaceList{}, off: w.metadata},
		{list: &corev1.PodList{}, off: gates, options: []client.ListOption{client.MatchingFields{"spec.nodeName": ""}}},
	} {
		if stripped[i], err = w.strip(ctx, s); err != nil {
			return stripped, err
		}
	}
	return stripped, nil
}

// metadata returns the patch that removes our finalizers, annotations and labels from a PVC
// or namespace.
func (w Withdrawal) metadata(o client.Object) patch {
	off, metadata := w.Of(o), patch{}
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
func (w Withdrawal) volume(o client.Object) patch {
	if !w.Alone || !slices.Contains(o.GetFinalizers(), pvc.VolumeFinalizer) || isKept(o.(*corev1.PersistentVolume)) {
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

// each reads a list page by page. If a page expires, the rest is unknown: an error.
func (w Withdrawal) each(ctx context.Context, list client.ObjectList, see func(client.Object) error, options ...client.ListOption) error {
	for token := ""; ; {
		if err := w.Client.List(ctx, list, append(slices.Clone(options), client.Limit(page), client.Continue(token))...); err != nil {
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
