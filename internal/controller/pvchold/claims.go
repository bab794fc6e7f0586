package pvchold

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

type ctrlReconciler = reconcile.Reconciler

// pass carries out verdicts. Both reconcilers go through it.
type pass struct {
	observe *pvccache.Holds
	act     *apply.Actor
	narrate *report.Holds
	ttl     time.Duration
	now     func() time.Time
}

// claimReconciler keeps the words on a claim true, keyed by the claim.
type claimReconciler struct{ *pass }

// Reconcile looks once, decides once, and writes only what was decided.
func (r *claimReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	now := r.now()
	view, err := r.observe.View(ctx, req.NamespacedName, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	if view.Claim == nil {
		r.narrate.Gone(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	verdict, err := r.decide(ctx, view)
	if err != nil {
		return ctrl.Result{}, err
	}
	token := pvc.DecideToken(view.Claim, now, r.ttl)
	r.judged(ctx, view.Claim, verdict)
	err = r.carryOut(ctx, view.Claim, pvc.Carry(view.Claim, verdict, token))
	switch {
	case errors.Is(err, apply.ErrStale):
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	case errors.Is(err, apply.ErrGone):
		return ctrl.Result{}, nil // its event tells how it went
	case err != nil:
		return ctrl.Result{}, err
	}
	r.narrate.Token(token)
	if view.Claim.DeletionTimestamp != nil {
		r.left(view.Claim) // its words went with this write: once, whoever was away when its deletion began
	}
	return ctrl.Result{RequeueAfter: sooner(now, verdict.Next, token.Until)}, nil
}

// decide decides by the caches, and by a live read before a hold ends or a PVC is deleted.
func (p *pass) decide(ctx context.Context, view pvc.HoldView) (pvc.HoldVerdict, error) {
	verdict := pvc.DecideHold(view)
	if !verdict.NeedsLive {
		return verdict, nil
	}
	live, err := p.observe.Live(ctx, view)
	if err != nil {
		return verdict, err
	}
	return pvc.DecideHold(live), nil
}

// carryOut writes in order. Each write is onto the version that the one before left:
// what was judged, and nothing that came in between.
func (p *pass) carryOut(ctx context.Context, owner client.Object, actions []action.Action) error {
	version := ""
	for _, a := range actions {
		if d, deletes := a.(action.Delete); deletes && version != "" {
			d.Object.ResourceVersion = version
			a = d
		}
		done, err := p.act.Do(ctx, a)
		if errors.Is(err, apply.ErrGone) {
			return apply.ErrGone
		}
		p.narrate.Tell(ctx, owner, a, err)
		if errors.Is(err, apply.ErrStale) {
			return apply.ErrStale
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", a.Verb(), a.Target(), err)
		}
		version = done.ResourceVersion
	}
	return nil
}

// judged tells what was decided, and has it forgotten again of a claim that went
// meanwhile: its event comes once, and may have come before.
func (p *pass) judged(ctx context.Context, claim *corev1.PersistentVolumeClaim, verdict pvc.HoldVerdict) {
	p.narrate.Judged(claim, verdict)
	key := client.ObjectKeyFromObject(claim)
	if cached, err := p.observe.Get(ctx, key); err == nil && cached == nil {
		p.narrate.Gone(key)
	}
}

// went has a claim forgotten that is gone. Nothing is left to decide of it, and of a
// thousand that go together none is looked at again for that.
func (p *pass) went(claim *corev1.PersistentVolumeClaim) {
	p.narrate.Gone(client.ObjectKeyFromObject(claim))
	p.left(claim)
}

// left tells of a claim that is leaving, or has left with its words on it, what these
// had to say.
func (p *pass) left(claim *corev1.PersistentVolumeClaim) {
	told, ok := pvc.TellLeft(claim)
	if !ok {
		return
	}
	namespace, err := p.observe.Namespace(context.Background(), claim.Namespace)
	if err != nil {
		namespace = pvccache.NewNamespace("") // it is told on the claim alone
	}
	p.narrate.Left(claim, namespace, told)
}

// sooner is how long it is until the first of two moments, of which either may be
// none, or zero.
func sooner(now time.Time, moments ...time.Time) time.Duration {
	var in time.Duration
	for _, at := range moments {
		if at.IsZero() {
			continue
		}
		if d := max(at.Sub(now), time.Millisecond); in == 0 || d < in {
			in = d
		}
	}
	return in
}
