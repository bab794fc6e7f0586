package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Offer is what a source has to present, and who must be trusted for it.
type Offer struct {
	Serving *tls.Certificate

	// Authorities are to be trusted by the webhook configurations. Empty: whoever
	// provides the certificate provides the bundles as well.
	Authorities []*x509.Certificate

	// Renew is when the source must be asked again; zero is never.
	Renew time.Time
}

// Source is where the server's certificate comes from.
type Source interface {
	Offer(ctx context.Context, now time.Time) (Offer, error)
}

// SharedSecret is a source that makes its own certificates and shares them with
// other replicas through a Secret. Two replicas that make one at the same time
// end up with the same: a write names the version it read, and who loses reads
// again.
type SharedSecret struct {
	Client client.Client
	Key    client.ObjectKey
	Names  Names
	Log    logr.Logger
}

// Offer returns the certificate of the Secret, made anew first where need be.
func (s *SharedSecret) Offer(ctx context.Context, now time.Time) (Offer, error) {
	var ring keyring
	err := retry.OnError(retry.DefaultBackoff, lostRace, func() (err error) {
		ring, err = s.read(ctx, now)
		return err
	})
	if err != nil {
		return Offer{}, fmt.Errorf("keep the webhook certificate in secret %q: %w", s.Key, err)
	}
	return Offer{Serving: ring.serving.tls(), Authorities: []*x509.Certificate{ring.authority.cert}, Renew: ring.expiry()}, nil
}

func lostRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func (s *SharedSecret) read(ctx context.Context, now time.Time) (keyring, error) {
	secret := &corev1.Secret{}
	err := s.Client.Get(ctx, s.Key, secret)
	if client.IgnoreNotFound(err) != nil {
		return keyring{}, err
	}
	absent := apierrors.IsNotFound(err)
	ring, why, err := renew(now, secret.Data, s.Names)
	if err != nil || why == "" {
		return ring, err
	}
	if err := s.write(ctx, absent, secret, ring); err != nil {
		return keyring{}, err
	}
	s.Log.Info("made a webhook certificate", "secret", s.Key.String(), "because", why, "expires", day(ring.serving.cert.NotAfter))
	return ring, nil
}

func (s *SharedSecret) write(ctx context.Context, absent bool, secret *corev1.Secret, ring keyring) error {
	if absent {
		return s.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Key.Namespace, Name: s.Key.Name},
			Data:       ring.data(),
		})
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for key, value := range ring.data() {
		secret.Data[key] = value
	}
	return s.Client.Update(ctx, secret) // carries the resourceVersion that was read
}

// Files is a source that somebody else fills: tls.crt, tls.key and, if the
// bundles are to be kept as well, ca.crt.
type Files struct {
	watcher   *certwatcher.CertWatcher
	authority string
}

// NewFiles opens the files of a directory. Run must be running for changes to
// be seen.
func NewFiles(dir string) (*Files, error) {
	watcher, err := certwatcher.New(filepath.Join(dir, keyServingCert), filepath.Join(dir, keyServingKey))
	if err != nil {
		return nil, fmt.Errorf("read the webhook certificate in %q: %w", dir, err)
	}
	return &Files{watcher: watcher, authority: filepath.Join(dir, keyAuthorityCert)}, nil
}

// Run watches the files until ctx ends, and calls changed when they change.
func (f *Files) Run(ctx context.Context, changed func()) error {
	f.watcher.RegisterCallback(func(tls.Certificate) { changed() })
	return f.watcher.Start(ctx)
}

// Offer returns what the files hold.
func (f *Files) Offer(context.Context, time.Time) (Offer, error) {
	serving, err := f.watcher.GetCertificate(nil)
	if err != nil {
		return Offer{}, err
	}
	bundle, err := os.ReadFile(f.authority)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Offer{}, fmt.Errorf("read the webhook authority: %w", err)
	}
	return Offer{Serving: serving, Authorities: parseBundle(bundle)}, nil
}
