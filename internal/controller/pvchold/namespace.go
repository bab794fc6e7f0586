package pvchold

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// reconcileNamespace keeps the number of held PVCs in an annotation of their namespace.
func (p *pass) reconcileNamespace(ctx context.Context, name string) (ctrl.Result, error) {
	namespace, err := pvccache.NamespaceOf(ctx, p.Holds.Caches, name)
	if err != nil || namespace.UID == "" {
		return ctrl.Result{}, err
	}
	claims, err := pvccache.PVCsOf(ctx, p.Holds.Caches, name)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := p.Now()
	token := pvc.DecideToken(namespace, now, p.ReleaseTTL)
	if err := p.carryOut(ctx, namespace, count(namespace, claims, token)); err != nil {
		return unwritten(err)
	}
	p.Report.Token(token)
	return ctrl.Result{RequeueAfter: until(now, token.Until)}, nil
}

func count(namespace *metav1.PartialObjectMetadata, claims []corev1.PersistentVolumeClaim, token pvc.TokenVerdict) []action.Action {
	annotations := map[string]string{}
	maps.Copy(annotations, pvc.CountHeld(namespace, claims))
	maps.Copy(annotations, token.Annotations)
	if len(annotations) == 0 {
		return nil
	}
	return []action.Action{action.Annotate{
		Object:      identity.RefOf(identity.KindNamespace, namespace),
		Annotations: annotations,
		Because:     action.Reason{Code: "HeldClaims", Sentence: "the number of held PVCs or the release of the namespace changed"},
		Tell:        action.Telling{Done: pvc.TellToken(token)},
	}}
}
