package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// recheck is the longest pause between two passes. Changes are watched; this
	// is for what no watch tells.
	recheck = 10 * time.Minute

	// glance is the pause where something is not watched.
	glance = time.Minute

	// settle is how long the bundles must have trusted a new certificate before
	// it is presented. API servers learn of a bundle through a watch of their own.
	settle = 30 * time.Second
)

// Options of a Keeper.
type Options struct {
	// Source is where certificates come from.
	Source Source

	// Client reads live and writes: a cache could show a bundle that is gone.
	Client client.Client

	// Events may be nil.
	Events events.EventRecorder

	Clock clock.PassiveClock
	Log   logr.Logger

	// Names of the configurations whose bundles are kept; empty for none.
	MutatingConfiguration   string
	ValidatingConfiguration string

	// Further is a mutating configuration that need not be there. It is not watched,
	// but looked for every minute.
	Further string
}

// Keeper keeps certificate and bundles in agreement, one pass at a time.
type Keeper struct {
	options Options

	mu        sync.RWMutex
	presented *tls.Certificate
	callers   []caller
	missing   []string

	recall       recollection
	trusted      *tls.Certificate // offered, and trusted by all bundles
	trustedSince time.Time
}

// NewKeeper returns a keeper that presents nothing before its first pass.
func NewKeeper(o Options) *Keeper {
	return &Keeper{options: o, recall: recollection{}}
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

// Keep makes one pass, and returns when the next is due though nothing happens.
// Passes must not run at the same time.
func (k *Keeper) Keep(ctx context.Context) (time.Duration, error) {
	now := k.options.Clock.Now()
	offer, err := k.options.Source.Offer(ctx, now)
	if err != nil {
		return 0, err
	}
	callers, missing, err := k.publish(ctx, now, offer.Authorities)
	if err != nil {
		return 0, err
	}
	k.recall.forget(bundlesOf(callers))
	wait := k.present(now, offer.Serving, callers)
	k.note(callers, missing)
	if k.options.Further != "" {
		wait = min(wait, glance)
	}
	if !offer.Renew.IsZero() {
		wait = min(wait, max(offer.Renew.Sub(now), time.Second))
	}
	return wait, nil
}

func bundlesOf(callers []caller) [][]*x509.Certificate {
	bundles := make([][]*x509.Certificate, len(callers))
	for i, c := range callers {
		bundles[i] = c.after
	}
	return bundles
}

// present changes over to the offered certificate as soon as every caller has
// trusted it for long enough, or at once if the present one is of no use.
// It returns when to look again.
func (k *Keeper) present(now time.Time, offered *tls.Certificate, callers []caller) time.Duration {
	if sameLeaf(k.presented, offered) {
		return recheck
	}
	if k.usable(now, callers) {
		if left := k.untilTrusted(now, offered, callers); left > 0 {
			return left
		}
	}
	k.mu.Lock()
	k.presented = offered
	k.mu.Unlock()
	k.options.Log.Info("presenting a webhook certificate", "serial", offered.Leaf.SerialNumber.Text(16), "expires", day(offered.Leaf.NotAfter))
	return recheck
}

func (k *Keeper) usable(now time.Time, callers []caller) bool {
	return k.presented != nil && !now.After(k.presented.Leaf.NotAfter) &&
		!slices.ContainsFunc(callers, func(c caller) bool { return !trusts(c.after, k.presented, now) })
}

// untilTrusted counts from the first pass that found the bundles as they should
// be, not from the one that made them so.
func (k *Keeper) untilTrusted(now time.Time, offered *tls.Certificate, callers []caller) time.Duration {
	if slices.ContainsFunc(callers, func(c caller) bool { return !trusts(c.before, offered, now) }) {
		k.trusted = nil
		return settle
	}
	if !sameLeaf(k.trusted, offered) {
		k.trusted, k.trustedSince = offered, now
	}
	return k.trustedSince.Add(settle).Sub(now)
}

func sameLeaf(a, b *tls.Certificate) bool {
	return a != nil && b != nil && a.Leaf.Equal(b.Leaf)
}

func (k *Keeper) note(callers []caller, missing []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.callers, k.missing = callers, missing
}

// Trusted connects to the webhook server at address the way the API server
// does, once for every name and bundle in the webhook configurations. It
// returns an error that says what the API server would stumble over.
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
	for i, c := range callers {
		if slices.ContainsFunc(callers[:i], func(earlier caller) bool {
			return earlier.host == c.host && sameBundle(earlier.after, c.after)
		}) {
			continue
		}
		if err := c.call(ctx, address); err != nil {
			return fmt.Errorf("the API server, calling %q, would not accept the webhook server: %w", c.host, err)
		}
	}
	return nil
}

func (c caller) call(ctx context.Context, address string) error {
	d := tls.Dialer{Config: &tls.Config{ServerName: c.host, RootCAs: poolOf(c.after), MinVersion: tls.VersionTLS12}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
