// Package certs makes the API server trust the webhook server.
//
// An installer writes a certificate authority into a Secret, and into the bundles of the webhook
// configurations. Each replica signs a serving certificate with it, which stays in memory, and presents it
// once all bundles have trusted it for a while:
//
//	Secret ──► bundles trust the authority as well ──► replicas present what it signed
//
// It writes nothing, and refuses to know what the webhooks answer.
package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// recheck is the pause between two passes: no watch reports a Secret.
	recheck = 10 * time.Minute
	// settle is how long API servers may take to learn of a bundle. It is also the pause while nothing can be presented.
	settle = 30 * time.Second
)

// Options of a Keeper.
type Options struct {
	// Namespace has the Secret of the authority, and Former: that of a certificate that an earlier version made.
	Namespace, Former string
	// Hosts are the names of the serving certificate.
	Hosts []string
	// Given is a directory where another program writes the certificate. The keeper then reports foreign webhooks alone.
	Given string
	// Client reads live: a cache could show an old bundle.
	Client client.Reader
	Clock  clock.PassiveClock
	Log    logr.Logger
}

// Keeper chooses the certificate to present, one pass at a time.
type Keeper struct {
	options Options

	mu        sync.RWMutex
	presented *tls.Certificate
	distrust  error
	// signed is the latest certificate that the authority signed, and trusted since when all bundles trust it.
	signed  *tls.Certificate
	trusted time.Time
}

// NewKeeper returns a keeper that presents nothing before its first pass.
func NewKeeper(o Options) *Keeper {
	if o.Given != "" {
		return &Keeper{options: o}
	}
	return &Keeper{options: o, distrust: errors.New("the webhook configurations have not been read yet")}
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

// Keep makes one pass, and returns when the next is due. Passes do not run concurrently.
func (k *Keeper) Keep(ctx context.Context) (time.Duration, error) {
	now := k.options.Clock.Now()
	callers, err := k.read(ctx)
	if k.options.Given != "" && err != nil {
		k.options.Log.Error(err, "cannot look for foreign webhooks") // the server needs no such right
	}
	if k.options.Given != "" {
		return recheck, nil
	}
	if err != nil {
		return 0, err
	}
	lack, err := k.sign(ctx, now)
	first := k.presented
	if err == nil && first == nil {
		first, err = k.former(ctx)
	}
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.present(first, callers, now)
	k.distrust = callers.distrust(k.presented, now)
	if lack != nil {
		k.options.Log.Info("cannot sign a webhook certificate", "reason", lack.Error())
		if k.distrust != nil {
			k.distrust, next = fmt.Errorf("%w: %w", k.distrust, lack), settle
		}
	}
	return next, nil
}

// present chooses between the certificate that is presented now and the latest that was signed.
func (k *Keeper) present(now *tls.Certificate, callers callers, at time.Time) time.Duration {
	k.presented = now
	isTrusted, willBe := callers.distrust(now, at) == nil, callers.distrust(k.signed, at) == nil
	if !willBe {
		k.trusted = time.Time{}
	} else if k.trusted.IsZero() {
		k.trusted = at
	}
	switch left := k.trusted.Add(settle).Sub(at); {
	case k.signed == nil || k.signed == now || isTrusted && !willBe:
		return recheck
	case isTrusted && left > 0:
		return left
	}
	k.presented = k.signed
	k.options.Log.Info("presenting a webhook certificate", "expires", date(k.signed.Leaf.NotAfter))
	return recheck
}

// sign signs another certificate if the authority is another one, or if the certificate ends soon. It returns
// what the authority lacks.
func (k *Keeper) sign(ctx context.Context, now time.Time) (lack, err error) {
	data, err := k.secret(ctx, AuthoritySecret)
	if err != nil {
		return nil, err
	}
	authority, lack := ReadAuthority(data, now)
	if lack != nil {
		return fmt.Errorf("secret %s/%s has no authority: %w; run: lockstep install, or helm upgrade", k.options.Namespace, AuthoritySecret, lack), nil
	}
	if k.signed != nil && k.signed.Leaf.CheckSignatureFrom(authority.Leaf) == nil {
		ends := k.signed.Leaf.NotAfter
		if now.Before(ends.Add(-renewBefore)) || ends.Equal(authority.Leaf.NotAfter) {
			return nil, nil
		}
	}
	made, err := serving(now, authority, k.options.Hosts)
	if err != nil {
		return nil, fmt.Errorf("sign a webhook certificate: %w", err)
	}
	k.signed, k.trusted = made, time.Time{}
	return nil, nil
}

// former returns the certificate that an earlier version made, or nil: bundles trust it until they are written.
func (k *Keeper) former(ctx context.Context) (*tls.Certificate, error) {
	data, err := k.secret(ctx, k.options.Former)
	if err != nil {
		return nil, err
	}
	if pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err == nil {
		return &pair, nil
	}
	return nil, nil
}

// secret returns the data of a Secret. It is empty where there is none, and where the roles of an earlier version
// do not name it.
func (k *Keeper) secret(ctx context.Context, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	err := k.options.Client.Get(ctx, client.ObjectKey{Namespace: k.options.Namespace, Name: name}, secret)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("read secret %q: %w", name, err)
	}
	return secret.Data, nil
}

// Watched returns the objects whose changes call for a pass, each by its name.
func (k *Keeper) Watched() map[client.Object]cache.ByObject {
	watched := map[client.Object]cache.ByObject{}
	if k.options.Given != "" {
		return watched // it may lack the right, and no server waits for it
	}
	for _, c := range configurations() {
		watched[c] = cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", c.GetName())}
	}
	return watched
}

// Setup makes the manager run a pass after each change, on every replica. The manager's
// cache must hold what Watched returns.
func (k *Keeper) Setup(mgr ctrl.Manager) error {
	if k.options.Given != "" {
		return mgr.Add(k)
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("webhook-certificates").
		WithOptions(controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: 1})
	for object := range k.Watched() {
		b = b.Watches(object, &handler.EnqueueRequestForObject{})
	}
	return b.Complete(k)
}

// Start implements manager.Runnable, where no watch calls for a pass.
func (k *Keeper) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) { _, _ = k.Keep(ctx) }, recheck)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Keeper) NeedLeaderElection() bool { return false }

// Reconcile makes one pass, whichever object changed.
func (k *Keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	next, err := k.Keep(ctx)
	return reconcile.Result{RequeueAfter: next}, err
}
