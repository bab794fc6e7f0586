package podgate

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

const (
	// lookAgain is how soon a pod or a claim that changed under a write is read again.
	lookAgain = 20 * time.Millisecond
	// patience is how long a pod waits for an event of its claims before it is looked
	// at without.
	patience = time.Minute
)

// Reconciler lifts gates.
type Reconciler struct {
	settings pvc.Settings
	gated    *pvccache.Gated
	claims   *pvccache.Claims
	act      *apply.Actor
	narrate  *report.Protection
}

// Reconcile sees to one pod: it is written on all of its claims, each as it was
// just read, and after that its gate is lifted. A claim that went in between
// refuses the write, and the pod is looked at anew.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod, err := r.gated.Get(ctx, req.NamespacedName)
	if err != nil || pod == nil {
		return ctrl.Result{}, err
	}
	view, err := r.look(ctx, pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	verdict, err := r.decide(ctx, view)
	if err != nil {
		return ctrl.Result{}, err
	}
	if verdict.Waits.Code != "" {
		r.narrate.Waits(pod, verdict.Waits)
		return ctrl.Result{RequeueAfter: patience}, nil
	}
	err = r.carryOut(ctx, verdict)
	switch {
	case errors.Is(err, apply.ErrStale), errors.Is(err, apply.ErrGone):
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, nil
}

// decide looks at the namespace itself before a gate is lifted because of what that
// does not ask for.
func (r *Reconciler) decide(ctx context.Context, view pvc.GateView) (pvc.GateVerdict, error) {
	verdict := pvc.DecideGate(view)
	if !verdict.NeedsLive {
		return verdict, nil
	}
	namespace, err := r.claims.NamespaceNow(ctx, view.Pod.Namespace)
	if err != nil {
		return pvc.GateVerdict{}, err
	}
	view.NamespaceLabels, view.NamespaceLive = namespace.Labels, true
	return pvc.DecideGate(view), nil
}

// look reads all claims of a pod from the API server.
func (r *Reconciler) look(ctx context.Context, pod *corev1.Pod) (pvc.GateView, error) {
	namespace, err := r.claims.Namespace(ctx, pod.Namespace)
	if err != nil {
		return pvc.GateView{}, err
	}
	live := pvc.Claims{}
	for _, name := range pvc.ClaimsOf(pod) {
		claim, err := r.claims.Live(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name})
		if err != nil {
			return pvc.GateView{}, err
		}
		if claim != nil {
			live[name] = claim
		}
	}
	return pvc.GateView{Pod: pod, Live: live, NamespaceLabels: namespace.Labels, Settings: r.settings}, nil
}

// carryOut writes in the one order that is safe.
func (r *Reconciler) carryOut(ctx context.Context, v pvc.GateVerdict) error {
	actions := make([]action.Action, 0, len(v.Writes)+1)
	for _, write := range v.Writes {
		actions = append(actions, write)
	}
	for _, a := range append(actions, v.Lift) {
		_, err := r.act.Do(ctx, a)
		r.narrate.Wrote(ctx, a, err)
		if err != nil {
			return err
		}
	}
	return nil
}
