package survey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
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

// patience is how long the first look may take when nothing else is said.
const patience = 30 * time.Second

// Session reads one namespace for as long as its context lasts.
type Session struct {
	*Surveyor
	// Reader reads the namespace from memory; Live asks the API server.
	Reader, Live client.Reader
	// Changed receives when anything that surveys are made of has changed since
	// it was last received from, and when the API server begins not to answer.
	Changed <-chan struct{}

	ctx     context.Context
	changed chan<- struct{}
	mu      sync.Mutex
	trouble error
}

// Ended is closed when the session cannot go on; Err says why.
func (s *Session) Ended() <-chan struct{} { return s.ctx.Done() }

// Err returns why the session ended, or nil while it lasts.
func (s *Session) Err() error { return context.Cause(s.ctx) }

// Open begins to read a namespace and returns when all of it that concerns sets
// is in memory. Nothing can be written through a session. It ends with ctx, or
// when the API server refuses to be read.
func Open(ctx context.Context, config *rest.Config, namespace string) (*Session, error) {
	ctx, fail := context.WithCancelCause(ctx)
	changed := make(chan struct{}, 1)
	s := &Session{ctx: ctx, Changed: changed, changed: changed}
	if err := s.open(config, namespace, fail); err != nil {
		fail(err)
		return nil, err
	}
	return s, nil
}

func (s *Session) open(config *rest.Config, namespace string, fail context.CancelCauseFunc) error {
	config = ReadOnly(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return listener{next, s.note} })
	limit := config.Timeout
	config.Timeout = 0 // a watch lasts
	config.QPS = -1    // the API server knows best how much it can bear
	config.WarningHandler = rest.NoWarnings{}
	held, err := s.cache(config, namespace, fail)
	if err != nil {
		return err
	}
	if s.Live, err = client.New(config, client.Options{Scheme: Scheme()}); err != nil {
		return err
	}
	s.Reader, s.Surveyor = held, NewSurveyor(held, s.Live)
	if err := s.follow(held); err != nil {
		return err
	}
	return s.fill(held, limit, fail)
}

// Scheme returns the types that surveys are made of.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, lwsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // the types are compiled in
		}
	}
	return scheme
}

func (s *Session) cache(config *rest.Config, namespace string, fail context.CancelCauseFunc) (cache.Cache, error) {
	options := lwscache.CacheOptions()
	options.Scheme = Scheme()
	options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	options.DefaultWatchErrorHandler = func(_ context.Context, _ *toolscache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			fail(err)
			return
		}
		s.note(err)
	}
	return cache.New(config, options)
}

// follow asks for everything a survey reads, and to be told when it changes.
func (s *Session) follow(held cache.Cache) error {
	if err := lwscache.Index(s.ctx, held); err != nil {
		return err
	}
	for object := range lwscache.CacheOptions().ByObject {
		informer, err := held.GetInformer(s.ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { s.tell() },
			UpdateFunc: func(_, _ any) { s.tell() },
			DeleteFunc: func(any) { s.tell() },
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

// fill starts the cache and returns when it is full.
func (s *Session) fill(held cache.Cache, limit time.Duration, fail context.CancelCauseFunc) error {
	if limit <= 0 {
		limit = patience
	}
	go func() {
		if err := held.Start(s.ctx); err != nil {
			fail(err)
		}
	}()
	waiting, done := context.WithTimeout(s.ctx, limit)
	defer done()
	if held.WaitForCacheSync(waiting) {
		return nil
	}
	if err := s.Err(); err != nil {
		return err
	}
	return fmt.Errorf("the API server has not told of all objects within %s; allow more with --request-timeout", limit)
}

// tell has whoever watches look again.
func (s *Session) tell() {
	select {
	case s.changed <- struct{}{}:
	default: // told already
	}
}

// note notes what came of a request, and tells of the first that is not answered: nothing
// else may ever come.
func (s *Session) note(err error) {
	if errors.Is(err, io.EOF) {
		return // a watch that ended in good order
	}
	s.mu.Lock()
	begins := err != nil && s.trouble == nil
	s.trouble = err
	s.mu.Unlock()
	if begins {
		s.tell()
	}
}

// listener hears whether requests are answered. Those who watch an API server that is not
// there try again without a word.
type listener struct {
	next http.RoundTripper
	note func(error)
}

// RoundTrip implements http.RoundTripper.
func (l listener) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	switch {
	case err == nil && response.StatusCode >= http.StatusInternalServerError: // no answer; who asked tells of it
	case err == nil || request.Context().Err() == nil:
		l.note(err)
	}
	return response, err
}

// Trouble returns what went wrong with reading since anything was last answered, or nil.
func (s *Session) Trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}
