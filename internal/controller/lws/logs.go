package lws

import (
	"context"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lwscache"
)

// logWorkers is how many groups have the logs of their failed containers read at once.
const logWorkers = 8

// logReconciler adds the ends of logs to decisions on leaders. It has a queue of its own: no restart
// waits for it.
type logReconciler struct{ *pass }

// Reconcile reads the logs of a group that is recreated, and writes their ends onto the leader.
func (r *logReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set, plan, err := r.observe.LogPlan(ctx, req.NamespacedName)
	if err != nil {
		return unread(req, err)
	}
	for _, a := range plan.Actions {
		if err := r.do(ctx, r.act, set, a); errors.Is(err, apply.ErrStale) {
			return ctrl.Result{RequeueAfter: readAgain}, nil
		} else if err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// setupLogs adds the controller that reads logs.
func setupLogs(mgr ctrl.Manager, p *pass, lines int64) error {
	pods, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	p.observe.WithLogs(lwscache.Logs{Lines: lines, Open: func(ctx context.Context, pod types.NamespacedName, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		return pods.Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
	}})
	decision := func(object client.Object) string { return object.GetAnnotations()[restart.AnnotationKey] }
	decided := func(before, after client.Object) bool { return decision(before) != decision(after) }
	failed := predicate.NewPredicateFuncs(func(object client.Object) bool { return decision(object) != "" })
	return ctrl.NewControllerManagedBy(mgr).
		Named("crashlog").
		WithOptions(options(logWorkers)).
		Watches(&corev1.Pod{}, watch(byOwnName, decided, 0), builder.WithPredicates(failed)).
		Complete(&logReconciler{p})
}
