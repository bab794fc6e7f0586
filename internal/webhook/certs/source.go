package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// offer is a certificate to present, and who must be trusted for it.
type offer struct {
	serving *tls.Certificate
	// authorities are empty where another program provides the bundles as well.
	authorities []*x509.Certificate
	// renew is when the source must be asked again; zero is never.
	renew time.Time
}

// Source is where the server's certificate comes from.
type Source interface {
	offer(ctx context.Context, now time.Time) (offer, error)
}

// SharedSecret is a source that makes its own certificates and shares them with other
// replicas by a Secret. A write names the version that was read, so two replicas that make
// one at the same time end up with the same.
type SharedSecret struct {
	Client client.Client
	Key    client.ObjectKey
	Hosts  []string
	Log    logr.Logger
}

func (s *SharedSecret) offer(ctx context.Context, now time.Time) (offer, error) {
	var ring keyring
	err := retry.OnError(retry.DefaultBackoff, lostRace, func() (err error) {
		ring, err = s.keyring(ctx, now)
		return err
	})
	if err != nil {
		return offer{}, fmt.Errorf("keep the webhook certificate in secret %q: %w", s.Key, err)
	}
	return offer{serving: ring.tls(), authorities: []*x509.Certificate{ring.authority.cert}, renew: ring.expiry()}, nil
}

func lostRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func (s *SharedSecret) keyring(ctx context.Context, now time.Time) (keyring, error) {
	secret := &corev1.Secret{}
	err := s.Client.Get(ctx, s.Key, secret)
	if client.IgnoreNotFound(err) != nil {
		return keyring{}, err
	}
	absent := apierrors.IsNotFound(err)
	ring, why, err := renew(now, secret.Data, s.Hosts)
	if err != nil || why == "" {
		return ring, err
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, ring.data())
	if absent {
		secret.Namespace, secret.Name = s.Key.Namespace, s.Key.Name
		err = s.Client.Create(ctx, secret)
	} else {
		err = s.Client.Update(ctx, secret)
	}
	if err == nil {
		s.Log.Info("made a webhook certificate", "secret", s.Key.String(), "because", why, "expires", day(ring.serving.cert.NotAfter))
	}
	return ring, err
}

// Files is a source that another program fills, cert-manager for example: tls.crt, tls.key
// and, if the bundles are to be kept as well, ca.crt.
type Files struct {
	*certwatcher.CertWatcher
	authority string
}

// NewFiles opens the files of a directory. Changes are seen while the watcher runs.
func NewFiles(dir string) (*Files, error) {
	watcher, err := certwatcher.New(filepath.Join(dir, keyServingCert), filepath.Join(dir, keyServingKey))
	if err != nil {
		return nil, fmt.Errorf("read the webhook certificate in %q: %w", dir, err)
	}
	return &Files{CertWatcher: watcher, authority: filepath.Join(dir, keyAuthorityCert)}, nil
}

func (f *Files) offer(context.Context, time.Time) (offer, error) {
	serving, err := f.GetCertificate(nil)
	if err != nil {
		return offer{}, err
	}
	bundle, err := os.ReadFile(f.authority)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return offer{}, fmt.Errorf("read the webhook authority: %w", err)
	}
	return offer{serving: serving, authorities: parseBundle(bundle)}, nil
}
