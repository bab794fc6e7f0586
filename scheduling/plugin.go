// Package scheduling is the kube-scheduler plugin ClaimProtection, which binds no pod to a PVC
// that is being deleted.
//
//	PreFilter   a terminating PVC is as good as missing           by the scheduler's cache
//	PreBind     every PVC is read from the API server, and the    live, onto the version read
//	            pod is recorded on those with a barrier
//	            (the use record)
//	Bind        of kube-scheduler, only if both went well
//
// A PVC that is deleted between the read and the write refuses the write. So a terminating PVC
// names every pod that this scheduler may have bound to it, and the removal of its last finalizer
// depends on no kubelet.
//
// A profile enables it under multiPoint. Enabled under preFilter as well, it runs before the
// built-in VolumeBinding, and the pod's status names a PVC that is gone.
//
// Beside the rights of a stock kube-scheduler it needs to patch PVCs, which stock roles allow,
// and, where the operator's policies guard the annotations of PVCs, the verb release on
// claims.protection.lockstep.dev.
//
// It knows the framework of kube-scheduler: build it into a scheduler with
// app.WithPlugin(scheduling.Name, scheduling.New). It refuses to know how a PVC is released, and
// what holds one besides pods.
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kube-scheduler/framework"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/pvc"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "ClaimProtection"

// Plugin is ClaimProtection.
type Plugin struct {
	client kubernetes.Interface
	claims corelisters.PersistentVolumeClaimLister
	turns  turns
}

var (
	_ framework.PreFilterPlugin   = &Plugin{}
	_ framework.EnqueueExtensions = &Plugin{}
	_ framework.SignPlugin        = &Plugin{}
	_ framework.PreBindPlugin     = &Plugin{}
)

// New returns the plugin. It is a framework PluginFactory. The plugin has no arguments: the barrier
// shows which PVCs are protected.
func New(_ context.Context, _ runtime.Object, handle framework.Handle) (framework.Plugin, error) {
	claims := handle.SharedInformerFactory().Core().V1().PersistentVolumeClaims().Lister()
	return &Plugin{client: handle.ClientSet(), claims: claims}, nil
}

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// incarnations are the UIDs of a pod's PVCs for which its node was chosen.
type incarnations map[string]types.UID

// Clone implements framework.StateData. The map is never changed.
func (i incarnations) Clone() framework.StateData { return i }

const stateKey framework.StateKey = Name

// PreFilter refuses a pod whose PVCs are missing or terminating, with the message of the
// built-in plugin. Preemption would not help.
func (p *Plugin) PreFilter(_ context.Context, state framework.CycleState, pod *corev1.Pod, _ []framework.NodeInfo) (*framework.PreFilterResult, *framework.Status) {
	names := pvc.ClaimsOf(pod)
	if len(names) == 0 {
		return nil, framework.NewStatus(framework.Skip)
	}
	claims, err := read(names, p.claims.PersistentVolumeClaims(pod.Namespace).Get)
	if err != nil {
		return nil, framework.AsStatus(err)
	}
	if why := pvc.Unusable(pod, claims); why != "" {
		return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, why)
	}
	chosen := incarnations{}
	for name, claim := range claims {
		chosen[name] = claim.UID
	}
	state.Write(stateKey, chosen)
	return nil, nil
}

// PreFilterExtensions is nil: other pods on a node change nothing about PVCs.
func (*Plugin) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// SignPod lets pods with like volumes share one choice of nodes. Without a signature the scheduler would batch no pod.
func (*Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]framework.SignFragment, *framework.Status) {
	return []framework.SignFragment{{Key: framework.VolumesSignerName, Value: framework.VolumesSigner(pod)}}, nil
}

// read returns the PVCs that exist, by name.
func read(names []string, get func(string) (*corev1.PersistentVolumeClaim, error)) (pvc.Claims, error) {
	claims := pvc.Claims{}
	for _, name := range names {
		claim, err := get(name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read persistentvolumeclaim %q: %w", name, err)
		default:
			claims[name] = claim
		}
	}
	return claims, nil
}

// EventsToRegister retries a refused pod when one of its PVCs is created, changed or deleted.
func (*Plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{{
		Event: framework.ClusterEvent{
			Resource:   framework.PersistentVolumeClaim,
			ActionType: framework.Add | framework.Update | framework.Delete,
		},
		QueueingHintFn: afterClaim,
	}}, nil
}

// afterClaim reports whether an event of a PVC is worth another try. A terminating PVC is not.
// One that is gone is: the status of the pod then says "not found". Any other change is: the
// record may be shorter, or a write was refused because of that change.
func afterClaim(_ klog.Logger, pod *corev1.Pod, before, after any) (framework.QueueingHint, error) {
	object, gone := after, after == nil
	if gone {
		object = before
	}
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return framework.Queue, fmt.Errorf("event of a PVC has a %T", object)
	}
	isUsed := claim.Namespace == pod.Namespace && slices.Contains(pvc.ClaimsOf(pod), claim.Name)
	if !isUsed || !gone && claim.DeletionTimestamp != nil {
		return framework.QueueSkip, nil
	}
	return framework.Queue, nil
}

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
