package lwscache

import (
	"context"
	"errors"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// endurance is how a list or a watch asks again while no API server answers.
//
// A reflector waits longer after each failure, up to a minute, and forgets its failures
// two minutes after the last one: several short absences of the API server in a row, as
// in an upgrade of a control plane, and it comes back a minute after the server. So it is
// told of none of them before it would forget: the pauses of all attempts are more than
// two minutes together.
type endurance struct {
	first, longest time.Duration
	attempts       int
	// least is for how long a watch lasts.
	least time.Duration
}

var enduring = endurance{first: 250 * time.Millisecond, longest: 2 * time.Second, attempts: 75, least: 1100 * time.Millisecond}

// Enduring are options of a cache whose lists and watches outwait an API server that does
// not answer.
func Enduring(options cache.Options) cache.Options {
	informer := options.NewInformer
	if informer == nil {
		informer = toolscache.NewSharedIndexInformer
	}
	options.NewInformer = func(from toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		return informer(enduring.over(from), object, resync, indexers)
	}
	return options
}

// over is the same list and watch, asked for until somebody answers.
func (e endurance) over(from toolscache.ListerWatcher) toolscache.ListerWatcher {
	lw := toolscache.ToListerWatcherWithContext(from)
	return toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
			e.ask(ctx, func() error { list, err = lw.ListWithContext(ctx, options); return err })
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (w watch.Interface, err error) {
			e.ask(ctx, func() error { w, err = lw.WatchWithContext(ctx, options); return err })
			if err != nil {
				return nil, err
			}
			return e.lasting(w), nil
		},
	}, from)
}

// lasting is a watch that ends no sooner than a reflector takes for a failure: a server
// that has just come back may go again.
func (e endurance) lasting(w watch.Interface) watch.Interface {
	h := &heard{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{}), ends: time.Now().Add(e.least)}
	go h.hear(func(watch.Event) {})
	return h
}

// ask asks until there is an answer, be it an error, or no attempt is left.
func (e endurance) ask(ctx context.Context, question func() error) {
	pause := e.first
	for range e.attempts {
		err := question()
		if !isNoAnswer(err) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.Jitter(max(pause, askedFor(err)), 0.5)):
		}
		pause = min(2*pause, e.longest)
	}
}

// askedFor is how long an API server wants to be left alone.
func askedFor(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}

// isNoAnswer tells whether nobody was there to answer, or an API server that is not ready
// to: one that has just begun says of a resource for a while that there are too many
// requests. All else that it says is an answer, and so is a certificate that is not to be
// trusted.
func isNoAnswer(err error) bool {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return false
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
		return true
	case errors.As(err, &status):
		return false
	}
	var failed *net.OpError
	return errors.As(err, &failed) && !isAlert(failed) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// isAlert tells whether TLS failed on a connection that stands: somebody is there.
func isAlert(failed *net.OpError) bool {
	return failed.Op == "remote error" || failed.Op == "local error"
}
