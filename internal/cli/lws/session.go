package lws

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lwscache"
)

const (
	// patience is how long the first lists may take without --request-timeout.
	patience = 30 * time.Second
	// beat is how often a session is read again.
	beat = time.Second
)

// Session reads one namespace for as long as its context lasts.
type Session struct {
	// Cached must have lwscache.CacheOptions and lwscache.Index. Live reads from the API server.
	Cached, Live client.Reader

	ctx context.Context
}

// Scheme returns the types that the commands read.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, lwsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // the types are compiled in
		}
	}
	return scheme
}

// Open starts to read a namespace, and returns when the cache is synced. Nothing can be written
// through a session. It ends with ctx, or when the API server refuses a list or watch. Other errors of
// watches are printed to warn.
func Open(ctx context.Context, config *rest.Config, namespace string, warn io.Writer) (s *Session, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			fail(err)
		}
	}()
	config = rest.CopyConfig(config)
	limit := cmp.Or(max(config.Timeout, 0), patience)
	config.Timeout = 0 // of a watch
	options := lwscache.CacheOptions()
	options.Scheme = Scheme()
	options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	options.DefaultWatchErrorHandler = func(_ context.Context, _ *toolscache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			fail(err)
			return
		}
		fmt.Fprintf(warn, "what is shown may be old, trying again: %v\n", err)
	}
	cached, err := cache.New(config, options)
	if err != nil {
		return nil, err
	}
	live, err := client.New(config, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, err
	}
	s = &Session{Cached: cached, Live: live, ctx: ctx}
	if err := s.follow(cached); err != nil {
		return nil, err
	}
	go func() {
		if err := cached.Start(ctx); err != nil {
			fail(err)
		}
	}()
	return s, s.sync(cached, limit)
}

// follow starts informers for everything that a survey reads.
func (s *Session) follow(cached cache.Cache) error {
	if err := lwscache.Index(s.ctx, cached); err != nil {
		return err
	}
	for object := range lwscache.CacheOptions().ByObject {
		if _, err := cached.GetInformer(s.ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	return nil
}

// sync returns when the cache is synced.
func (s *Session) sync(cached cache.Cache, limit time.Duration) error {
	waiting, done := context.WithTimeout(s.ctx, limit)
	defer done()
	switch {
	case cached.WaitForCacheSync(waiting):
		return nil
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	}
	return fmt.Errorf("the API server has not listed all objects within %s; allow more with --request-timeout", limit)
}

// Await returns when it is time to read again. The error says why the session ended.
func (s *Session) Await() error {
	select {
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-time.After(beat):
		return nil
	}
}
