// Package podgate removes the scheduling gate of a pod once its PVCs record it.
//
// In mode strict pods that use PVCs are created with a scheduling gate. The API server binds
// no pod that has one, whatever the scheduler:
//
//	created, gated ─► PVCs read live ─► pod recorded on each ─► gate removed ─► scheduled
//	                        │  missing, terminating
//	                        ▼
//	                 reported, and read again after as long as the pod has waited
//
// It knows which events concern which pods, and the order of reads and writes. It refuses to know when a PVC may be
// used, and what its record contains. pvcfinalizer removes pods from records.
package podgate

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/turn"
)

const (
	// workers is the number of pods that are reconciled at a time. Those that share a PVC conflict, and are read again.
	workers = 8
	// lookAgain is how soon a pod or a PVC that changed under a write is read again.
	lookAgain = 20 * time.Millisecond
	// waitAtMost is how long a pod waits before its PVCs are read again.
	waitAtMost = 30 * time.Second
)

// Reconciler removes gates.
type Reconciler struct {
	Settings pvc.Settings
	Pods     *pvccache.Pods
	// Live must not read from a cache.
	Live   client.Reader
	Actor  *apply.Actor
	Report *report.Protection
}

// Setup adds the controller to a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("strict").
		WatchesRawSource(source.Func(r.follow)).
		WithOptions(turn.Options(workers)).
		Complete(r)
}

// follow adds gated pods to the queue.
func (r *Reconciler) follow(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	return r.Pods.Follow(func(_, after *pvccache.PodUses) {
		if after != nil && after.IsGated() {
			queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: after.Namespace, Name: after.Name}})
		}
	})
}

// Reconcile records one pod on all of its PVCs, each as it was just read, and then removes its
// gate. A PVC that is deleted in between refuses the write.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := r.Pods.Gated(req.NamespacedName)
	if pod == nil {
		return ctrl.Result{}, nil
	}
	view, err := r.view(ctx, pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	verdict := pvc.DecideGate(view)
	if verdict.Waits.Code != "" {
		r.Report.Waits(pod, verdict.Waits)
		age := time.Since(pod.CreationTimestamp.Time)
		return ctrl.Result{RequeueAfter: min(max(age, lookAgain), waitAtMost)}, nil
	}
	err = r.carryOut(ctx, verdict)
	if errors.Is(err, apply.ErrStale) || errors.Is(err, apply.ErrGone) {
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	return ctrl.Result{}, err
}

// view reads the PVCs and the namespace of a pod live.
func (r *Reconciler) view(ctx context.Context, pod *corev1.Pod) (pvc.GateView, error) {
	view := pvc.GateView{Pod: pod, Live: pvc.Claims{}, Settings: r.Settings}
	for _, name := range pvc.ClaimsOf(pod) {
		claim, err := pvccache.PVC(ctx, r.Live, types.NamespacedName{Namespace: pod.Namespace, Name: name})
		if err != nil {
			return view, err
		}
		view.Live[name] = claim
	}
	namespace, err := pvccache.NamespaceOf(ctx, r.Live, pod.Namespace)
	if err != nil {
		return view, err
	}
	view.NamespaceLabels = namespace.Labels
	return view, nil
}

// carryOut writes the records before it removes the gate.
func (r *Reconciler) carryOut(ctx context.Context, v pvc.GateVerdict) error {
	var actions []action.Action
	for _, write := range v.Writes {
		actions = append(actions, write)
	}
	for _, a := range append(actions, v.Lift) {
		_, err := r.Actor.Do(ctx, a)
		r.Report.Wrote(ctx, a, err)
		if err != nil {
			return err
		}
	}
	return nil
}
