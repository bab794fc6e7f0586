// Package pvchold makes the API server refuse the deletion of PVCs that are in use.
//
// It knows which events concern which PVCs, and carries out what is decided about one PVC, or
// one namespace, at a time. It refuses to know what holds a PVC and why, and takes part in no
// deletion: policies of the API server judge the annotations of a PVC, with or without it.
package pvchold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		written, err := p.Actor.Do(ctx, a)
		if errors.Is(err, apply.ErrGone) {
			return err
		}
		p.Report.Tell(ctx, owner, a, err)
		if err != nil {
			return fmt.Errorf("%s %s: %w", a.About().Verb, a.Target(), err)
		}
		version = written
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
	if err := p.carryOut(ctx, namespace, pvc.CarryCount(namespace, claims, token)); err != nil {
		return unwritten(err)
	}
	p.Report.Token(token)
	return ctrl.Result{RequeueAfter: until(now, token.Until)}, nil
}

const (
	// workers bound the PVCs and namespaces that are written at a time: the rest of the operator
	// shares the connection.
	workers = 8
	// gatherFor is how long events of a PVC are gathered.
	gatherFor = 50 * time.Millisecond
	// recountAfter is how long changes of the PVCs of a namespace are gathered.
	recountAfter = 500 * time.Millisecond
	// lookAgain is how soon a PVC that changed since the read is read again, unless an event
	// comes first.
	lookAgain = 100 * time.Millisecond
)

// Options are what the controllers of holds work with.
type Options struct {
	Holds  *pvccache.Holds
	Actor  *apply.Actor
	Report *report.Holds
	// ReleaseTTL is how long a release token lasts.
	ReleaseTTL time.Duration
	Now        func() time.Time
}

// Setup adds the controller of holds to the manager.
func Setup(mgr ctrl.Manager, o Options) error {
	p := &pass{Options: o, elected: mgr.Elected()}
	// Before the caches sync: the operator may release a PVC as soon as they have.
	if err := pvccache.Follow(context.Background(), o.Holds.Caches, &corev1.PersistentVolumeClaim{}, p.went); err != nil {
		return fmt.Errorf("follow deleted PVCs: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("hold").WithOptions(turn.Options(workers)).WatchesRawSource(source.Func(p.follow)).Complete(p)
}

// follow adds PVCs to the queue, and namespaces, which have no name beside that of a namespace.
func (p *pass) follow(ctx context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	if err := p.Holds.AwaitSync(ctx); err != nil {
		return err
	}
	recount := func(namespace string) {
		q.AddAfter(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace}}, recountAfter)
	}
	return errors.Join(
		p.Holds.FollowPVCs(ctx, func(key types.NamespacedName) { q.AddAfter(ctrl.Request{NamespacedName: key}, gatherFor) }),
		pvccache.Follow(ctx, p.Holds.Caches, &corev1.PersistentVolumeClaim{}, func(before, after *corev1.PersistentVolumeClaim) {
			recount(cmp.Or(after, before).Namespace)
		}),
		pvccache.Follow(ctx, p.Holds.Caches, pvccache.NewNamespace(""), func(before, after *metav1.PartialObjectMetadata) {
			recount(cmp.Or(after, before).Name)
			p.ends(before, after)
		}),
	)
}

// Reconcile keeps the annotations of a PVC or a namespace true.
func (p *pass) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name == "" {
		return p.reconcileNamespace(ctx, req.Namespace)
	}
	return p.reconcilePVC(ctx, req.NamespacedName)
}

// ends reports that the release of a namespace is used: its deletion begins.
func (p *pass) ends(before, after *metav1.PartialObjectMetadata) {
	if before != nil && after != nil && before.DeletionTimestamp == nil && after.DeletionTimestamp != nil && p.leads() {
		p.Report.Ends(after)
	}
}

// leads reports whether this replica has the lease. The others follow events too, and must not
// report them again.
func (p *pass) leads() bool {
	select {
	case <-p.elected:
		return true
	default:
		return false
	}
}
