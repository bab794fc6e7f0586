package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// recheck is the longest pause between two passes, for changes that no watch reports.
	recheck = 10 * time.Minute
	// settle is how long API servers may take to learn of a bundle.
	settle = 30 * time.Second
	// passName is the one key of the queue: each event asks for the same pass.
	passName = "webhook-certificates"
)

// Options of a Keeper.
type Options struct {
	Source Source
	// Client reads live and writes: a cache could show an old bundle.
	Client client.Client
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Log    logr.Logger
	// The names of the webhook configurations whose bundles are kept.
	MutatingConfiguration, ValidatingConfiguration string
}

// Keeper keeps certificate and bundles in agreement, one pass at a time.
type Keeper struct {
	options Options

	mu        sync.RWMutex
	presented *tls.Certificate
	callers   []caller
	missing   []string
}

// NewKeeper returns a keeper that presents nothing before its first pass.
func NewKeeper(o Options) *Keeper { return &Keeper{options: o} }

// GetCertificate gives a TLS server the certificate to present.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.presented == nil {
		return nil, errors.New("there is no webhook certificate yet")
	}
	return k.presented, nil
}

// keep makes one pass, and returns when the next is due. Passes do not run concurrently.
func (k *Keeper) keep(ctx context.Context) (time.Duration, error) {
	now := k.options.Clock.Now()
	offered, err := k.options.Source.offer(ctx, now)
	if err != nil {
		return 0, err
	}
	callers, missing, err := k.publish(ctx, now, offered.authorities)
	if err != nil {
		return 0, err
	}
	next := recheck
	if !offered.renew.IsZero() {
		next = min(next, max(offered.renew.Sub(now), time.Second))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.callers, k.missing = callers, missing
	if k.presented != nil && k.presented.Leaf.Equal(offered.serving.Leaf) {
		return next, nil
	}
	if k.serves(now) && slices.ContainsFunc(callers, func(c caller) bool { return !trusts(c.before, offered.serving, now) }) {
		return settle, nil
	}
	k.presented = offered.serving
	k.options.Log.Info("presenting a webhook certificate", "serial", offered.serving.Leaf.SerialNumber.Text(16), "expires", day(offered.serving.Leaf.NotAfter))
	return next, nil
}

// serves reports whether each caller accepts the certificate that is presented.
func (k *Keeper) serves(now time.Time) bool {
	return k.presented != nil && !now.After(k.presented.Leaf.NotAfter) &&
		!slices.ContainsFunc(k.callers, func(c caller) bool { return !trusts(c.after, k.presented, now) })
}

// Trusted connects to the webhook server at address as the API server does, once for each
// webhook. It returns the error that the API server would meet.
func (k *Keeper) Trusted(ctx context.Context, address string) error {
	k.mu.RLock()
	callers, missing := k.callers, k.missing
	k.mu.RUnlock()
	if len(missing) > 0 {
		return fmt.Errorf("webhook configuration %s not found; run: lockstep install", strings.Join(missing, ", "))
	}
	if len(callers) == 0 {
		return errors.New("the webhook configurations have not been read yet")
	}
	for _, c := range callers {
		d := tls.Dialer{Config: &tls.Config{ServerName: c.host, RootCAs: poolOf(c.after), MinVersion: tls.VersionTLS12}}
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("the API server, calling %q, would not accept the webhook server: %w", c.host, err)
		}
		if err := conn.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Begin makes the first pass, so that the server has a certificate when it starts.
func (k *Keeper) Begin(ctx context.Context) error {
	return retry.OnError(retry.DefaultBackoff, lostRace, func() error {
		_, err := k.keep(ctx)
		return err
	})
}

// Watched returns the objects whose changes call for a pass, each by its name: the
// operator may read no other Secret.
func (k *Keeper) Watched() map[client.Object]cache.ByObject {
	watched := map[client.Object]cache.ByObject{}
	for _, c := range k.options.configurations() {
		watched[c] = cache.ByObject{Field: named(c.GetName())}
	}
	if s, ok := k.options.Source.(*SharedSecret); ok {
		watched[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{s.Key.Namespace: {FieldSelector: named(s.Key.Name)}}}
	}
	return watched
}

func named(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }

// Setup makes the manager run a pass after each change, on every replica. The manager's
// cache must hold what Watched returns.
func (k *Keeper) Setup(mgr ctrl.Manager) error {
	k.options.Events = mgr.GetEventRecorder("lockstep")
	pass := reconcile.Request{NamespacedName: client.ObjectKey{Name: passName}}
	toPass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{pass} })
	files, isFiles := k.options.Source.(*Files)
	b := ctrl.NewControllerManagedBy(mgr).Named(passName).
		WithOptions(controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: 1}).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(pass) // the first pass may precede the watches
			if isFiles {
				files.RegisterCallback(func(tls.Certificate) { queue.Add(pass) })
			}
			return nil
		}))
	for object := range k.Watched() {
		b = b.Watches(object, toPass)
	}
	if err := b.Complete(k); err != nil || !isFiles {
		return err
	}
	return mgr.Add(files)
}

// Reconcile makes one pass.
func (k *Keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	next, err := k.keep(ctx)
	if lostRace(err) {
		return reconcile.Result{RequeueAfter: retry.DefaultBackoff.Duration}, nil
	}
	return reconcile.Result{RequeueAfter: next}, err
}
