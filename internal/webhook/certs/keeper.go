// Package certs makes the API server trust the webhook server.
//
// It knows the certificate of the server, the Secret in which replicas share one, and the
// CA bundles of the webhook configurations, which are copies of that in the Secret. They
// change in this order, so that the API server always accepts the server:
//
//	Secret ──► bundles trust the new certificate as well ──► the server presents it
//
// It refuses to know what the webhooks answer.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// recheck is the longest pause between two passes, for changes that no watch reports.
	recheck = 10 * time.Minute
	// settle is how long API servers may take to learn of a bundle.
	settle = 30 * time.Second
)

// Options of a Keeper.
type Options struct {
	// Secret shares the keeper's own certificate, for Hosts, with other replicas.
	Secret client.ObjectKey
	Hosts  []string
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
	distrust  error
	// next is the certificate to present, and published when a bundle was last changed for it.
	next      *x509.Certificate
	published time.Time
}

// NewKeeper returns a keeper that presents nothing before its first pass.
func NewKeeper(o Options) *Keeper {
	return &Keeper{options: o, distrust: errors.New("the webhook configurations have not been read yet")}
}

// offer is a certificate to present, and the CA bundle that must be trusted for it, in PEM.
type offer struct {
	serving *tls.Certificate
	bundle  []byte
}

// GetCertificate gives a TLS server the certificate to present.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.presented == nil {
		return nil, errors.New("there is no webhook certificate yet")
	}
	return k.presented, nil
}

// Trusted returns why the API server would not accept the certificate, by the last pass.
func (k *Keeper) Trusted() error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.distrust
}

// keep makes one pass, and returns when the next is due. Passes do not run concurrently.
func (k *Keeper) keep(ctx context.Context) (time.Duration, error) {
	now := k.options.Clock.Now()
	offered, err := k.fromSecret(ctx, now)
	if err != nil {
		return 0, fmt.Errorf("keep the webhook certificate in secret %q: %w", k.options.Secret, err)
	}
	callers, err := k.publish(ctx, offered.bundle)
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.distrust = callers.distrust(offered.bundle, k.presented, now) }()
	if callers.changed || k.next == nil || !k.next.Equal(offered.serving.Leaf) {
		k.next, k.published = offered.serving.Leaf, now
	}
	if k.presented != nil && k.presented.Leaf.Equal(offered.serving.Leaf) {
		return recheck, nil
	}
	settled := k.published.Add(settle)
	if k.presented != nil && now.Before(settled) && callers.distrust(offered.bundle, k.presented, now) == nil {
		return settled.Sub(now), nil
	}
	k.presented = offered.serving
	k.options.Log.Info("presenting a webhook certificate", "serial", offered.serving.Leaf.SerialNumber.Text(16), "expires", day(offered.serving.Leaf.NotAfter))
	return recheck, nil
}

// Begin makes the first pass, so that the server has a certificate when it starts.
func (k *Keeper) Begin(ctx context.Context) error {
	return retry.OnError(retry.DefaultBackoff, lostRace, func() error {
		_, err := k.keep(ctx)
		return err
	})
}

func lostRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// Watched returns the objects whose changes call for a pass, each by its name: the
// operator may read no other Secret.
func (k *Keeper) Watched() map[client.Object]cache.ByObject {
	s := k.options.Secret
	watched := map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{s.Namespace: {FieldSelector: named(s.Name)}}},
	}
	for _, c := range k.options.configurations() {
		watched[c] = cache.ByObject{Field: named(c.GetName())}
	}
	return watched
}

func named(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }

// Setup makes the manager run a pass after each change, on every replica. The manager's
// cache must hold what Watched returns.
func (k *Keeper) Setup(mgr ctrl.Manager) error {
	k.options.Events = mgr.GetEventRecorder("lockstep")
	b := ctrl.NewControllerManagedBy(mgr).Named("webhook-certificates").
		WithOptions(controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: 1})
	for object := range k.Watched() {
		b = b.Watches(object, &handler.EnqueueRequestForObject{})
	}
	return b.Complete(k)
}

// Reconcile makes one pass, whichever object changed.
func (k *Keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	next, err := k.keep(ctx)
	if lostRace(err) {
		return reconcile.Result{RequeueAfter: retry.DefaultBackoff.Duration}, nil
	}
	return reconcile.Result{RequeueAfter: next}, err
}
