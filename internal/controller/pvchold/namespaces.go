package pvchold

import (
	"context"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// namespaceReconciler has a namespace tell how many of its claims are held, keyed by
// the namespace.
type namespaceReconciler struct{ *pass }

// Reconcile counts once, and writes the number if it is another one.
func (r *namespaceReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	namespace, err := r.observe.Namespace(ctx, req.Name)
	if err != nil || namespace.UID == "" {
		return ctrl.Result{}, err
	}
	claims, err := r.observe.In(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.now()
	token := pvc.DecideToken(namespace, now, r.ttl)
	err = r.carryOut(ctx, namespace, counting(namespace, claims, token))
	switch {
	case errors.Is(err, apply.ErrStale):
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	case errors.Is(err, apply.ErrGone):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	r.narrate.Token(token)
	return ctrl.Result{RequeueAfter: sooner(now, token.Until)}, nil
}

func counting(namespace *metav1.PartialObjectMetadata, claims []corev1.PersistentVolumeClaim, token pvc.TokenVerdict) []action.Action {
	words := map[string]string{}
	maps.Copy(words, pvc.CountHeld(namespace, claims))
	maps.Copy(words, token.Annotations)
	if len(words) == 0 {
		return nil
	}
	return []action.Action{action.Annotate{
		Object:      identity.RefOf(identity.KindNamespace, namespace),
		Annotations: words,
		Because:     action.Reason{Code: "HeldClaims", Sentence: "claims of the namespace are held, or are no more"},
		Tell:        action.Telling{Done: pvc.TellToken(token)},
	}}
}
