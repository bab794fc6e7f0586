package pvchold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// pass carries out verdicts.
type pass struct {
	Options
	elected <-chan struct{}
}

// reconcilePVC keeps the annotations of a PVC true.
func (p *pass) reconcilePVC(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	now := p.Now()
	view, err := p.Holds.View(ctx, key, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	if view.Claim == nil {
		p.Report.Gone(key)
		return ctrl.Result{}, nil
	}
	verdict, err := p.decide(ctx, view)
	if err != nil {
		return ctrl.Result{}, err
	}
	p.Report.Judged(view.Claim, verdict)
	token := pvc.DecideToken(view.Claim, now, p.ReleaseTTL)
	err = p.carryOut(ctx, view.Claim, pvc.Carry(view.Claim, verdict, token))
	if err != nil {
		return unwritten(err)
	}
	p.Report.Token(token)
	if view.Claim.DeletionTimestamp != nil {
		p.left(ctx, view.Claim) // this write removed its annotations: this is reported once
	}
	return ctrl.Result{RequeueAfter: until(now, verdict.Next, token.Until)}, nil
}

// unwritten is the outcome of a write that was refused.
func unwritten(err error) (ctrl.Result, error) {
	switch {
	case errors.Is(err, apply.ErrStale):
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	case errors.Is(err, apply.ErrGone):
		return ctrl.Result{}, nil // its event reports it
	}
	return ctrl.Result{}, err
}

// decide decides by the caches, and by a live read before a hold ends or a PVC is deleted.
func (p *pass) decide(ctx context.Context, view pvc.HoldView) (pvc.HoldVerdict, error) {
	verdict := pvc.DecideHold(view)
	if !verdict.NeedsLive {
		return verdict, nil
	}
	live, err := p.Holds.Live(ctx, view)
	if err != nil {
		return verdict, err
	}
	return pvc.DecideHold(live), nil
}

// carryOut writes in order. Each write is onto the version that the one before left.
func (p *pass) carryOut(ctx context.Context, owner client.Object, actions []action.Action) error {
	version := ""
	for _, a := range actions {
		if d, deletes := a.(action.Delete); deletes && version != "" {
			d.Object.ResourceVersion = version
			a = d
		}
		done, err := p.Actor.Do(ctx, a)
		if errors.Is(err, apply.ErrGone) {
			return err
		}
		p.Report.Tell(ctx, owner, a, err)
		if err != nil {
			return fmt.Errorf("%s %s: %w", a.About().Verb, a.Target(), err)
		}
		version = done.ResourceVersion
	}
	return nil
}

// went reports a PVC that was deleted in use, if this replica leads.
func (p *pass) went(before, after *corev1.PersistentVolumeClaim) {
	if after == nil && p.leads() {
		p.left(context.Background(), before)
	}
}

// left reports that a PVC was deleted while its annotations named holders.
func (p *pass) left(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	told, ok := pvc.TellLeft(claim)
	if !ok {
		return
	}
	namespace, err := pvccache.NamespaceOf(ctx, p.Holds.Caches, claim.Namespace)
	if err != nil {
		namespace = pvccache.NewNamespace("") // the event is about the PVC alone
	}
	p.Report.Left(claim, namespace, told)
}

// until is how long it is until the first of moments that are not zero.
func until(now time.Time, moments ...time.Time) (in time.Duration) {
	for _, at := range moments {
		if d := max(at.Sub(now), time.Millisecond); !at.IsZero() && (in == 0 || d < in) {
			in = d
		}
	}
	return in
}

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
