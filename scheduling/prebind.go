package scheduling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-scheduler/framework"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/pvc"
)

const (
	// attempts bound how often PVCs are read again after one changed in between.
	attempts = 5
	// writer owns the use record in managedFields.
	writer = "lockstep-scheduling"
)

// PreBindPreFlight skips pods that use no PVC.
func (p *Plugin) PreBindPreFlight(_ context.Context, _ framework.CycleState, pod *corev1.Pod, _ string) (*framework.PreBindPreFlightResult, *framework.Status) {
	if len(pvc.ClaimsOf(pod)) == 0 {
		return nil, framework.NewStatus(framework.Skip)
	}
	return nil, nil
}

// PreBind records the pod on its PVCs as they are in the API server. The pod may be bound only
// if all of them name it. A record stays if the pod is not bound: another attempt needs it.
func (p *Plugin) PreBind(ctx context.Context, state framework.CycleState, pod *corev1.Pod, _ string) *framework.Status {
	data, err := state.Read(stateKey)
	chosen, ok := data.(incarnations)
	if err != nil || !ok {
		return framework.AsStatus(fmt.Errorf("%s is enabled at PreBind and not at PreFilter: enable it under multiPoint: %w", Name, err))
	}
	defer p.turns.take(pod)()
	for range attempts {
		var status *framework.Status
		if status, err = p.record(ctx, pod, chosen); err == nil {
			return status
		}
		if !mayHaveChanged(err) {
			break
		}
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return framework.NewStatus(framework.Unschedulable, fmt.Sprintf("claims changed %d times while the pod was written on them: %v", attempts, err))
	}
	return framework.AsStatus(err)
}

// mayHaveChanged reports whether a write was refused because the PVC has changed. A policy
// refuses before the version is compared, and forbids the write.
func mayHaveChanged(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// record reads the PVCs and writes the pod onto those that do not name it. An error is one of
// the API server; a status is about the PVCs.
func (p *Plugin) record(ctx context.Context, pod *corev1.Pod, chosen incarnations) (*framework.Status, error) {
	claims := p.client.CoreV1().PersistentVolumeClaims(pod.Namespace)
	live, err := read(pvc.ClaimsOf(pod), func(name string) (*corev1.PersistentVolumeClaim, error) {
		return claims.Get(ctx, name, metav1.GetOptions{})
	})
	if err != nil {
		return nil, err
	}
	for name, claim := range live {
		if claim.DeletionTimestamp == nil && claim.UID != chosen[name] {
			why := fmt.Sprintf("persistentvolumeclaim %q was created anew after a node was chosen", name)
			return framework.NewStatus(framework.UnschedulableAndUnresolvable, why), nil
		}
	}
	writes, err := pvc.Bind(pod, live)
	switch {
	case errors.Is(err, pvc.ErrFull):
		return framework.NewStatus(framework.Unschedulable, err.Error()), nil // until the operator removes pods that are gone
	case err != nil:
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, err.Error()), nil
	}
	return nil, p.write(ctx, writes)
}

// write writes use records onto the incarnations and versions that were read.
func (p *Plugin) write(ctx context.Context, writes []action.Annotate) error {
	for _, w := range writes {
		onto := w.Target()
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": onto.UID, "resourceVersion": onto.ResourceVersion, "annotations": w.Annotations,
		}})
		if err != nil {
			return err
		}
		_, err = p.client.CoreV1().PersistentVolumeClaims(onto.Namespace).Patch(ctx, onto.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: writer})
		if err != nil {
			return fmt.Errorf("write the use record of persistentvolumeclaim %q: %w", onto.Name, err)
		}
	}
	return nil
}

// turns lets pods that share a PVC write onto it one after the other. A scheduler binds many at
// a time, and all but one of the writes would conflict. The resourceVersion keeps a record right.
type turns [64]sync.Mutex

// take waits until no other pod writes onto the PVCs of a pod. Locks are taken in order, so that
// two pods cannot wait for each other.
func (t *turns) take(pod *corev1.Pod) (give func()) {
	var needed []int
	for _, name := range pvc.ClaimsOf(pod) {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(pod.Namespace + "/" + name)) // never fails
		needed = append(needed, int(hash.Sum32())%len(t))
	}
	slices.Sort(needed)
	needed = slices.Compact(needed)
	for _, i := range needed {
		t[i].Lock()
	}
	return func() {
		for _, i := range needed {
			t[i].Unlock()
		}
	}
}
