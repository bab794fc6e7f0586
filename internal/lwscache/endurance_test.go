package lwscache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

var refused = &url.Error{Op: "Get", URL: "https://127.0.0.1:6443/api", Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}

func TestOnlyWhatNobodyAnsweredIsAskedAgain(t *testing.T) {
	for _, tt := range []struct {
		err   error
		asked int
	}{
		{nil, 1},
		{refused, 3},
		{fmt.Errorf("list: %w", refused), 3},
		{&url.Error{Op: "Get", Err: io.EOF}, 3},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no")), 1},
		{apierrors.NewTooManyRequests("storage is (re)initializing", 0), 3},
		{apierrors.NewServiceUnavailable("not ready"), 3},
		{apierrors.NewInternalError(errors.New("conversion webhook")), 1},
		{&url.Error{Op: "Get", Err: errors.New("x509: certificate signed by unknown authority")}, 1},
		{&url.Error{Op: "Get", Err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}}, 1},
		{context.Canceled, 1},
	} {
		asked := 0
		lw := endurance{first: 1, longest: 1, attempts: 3}.over(&cache.ListWatch{
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				asked++
				return watch.NewFake(), tt.err
			},
		})
		_, err := cache.ToListerWatcherWithContext(lw).WatchWithContext(t.Context(), metav1.ListOptions{})
		if asked != tt.asked || !errors.Is(err, tt.err) {
			t.Errorf("%v: asked %d times, want %d; %v", tt.err, asked, tt.asked, err)
		}
	}
}

func TestWhoeverStopsAskingIsNotKept(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	asked := 0
	endurance{first: time.Hour, longest: time.Hour, attempts: 3}.ask(ctx, func() error {
		asked++
		stop()
		return refused
	})
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// A reflector that were told of them would wait for days.
func TestAnAbsentAPIServerIsOutwaited(t *testing.T) {
	asked := 0
	answered := make(chan struct{})
	source := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if asked++; asked < 30 {
				return nil, refused
			}
			close(answered)
			return &corev1.PodList{}, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
			}
			return watch.NewFake(), nil
		},
	}
	go cache.NewReflectorWithOptions(endurance{first: 1, longest: 1, attempts: 75}.over(source), &corev1.Pod{}, cache.NewStore(cache.MetaNamespaceKeyFunc), cache.ReflectorOptions{}).RunWithContext(t.Context())
	select {
	case <-answered:
	case <-time.After(time.Minute):
		t.Fatalf("asked %d times in a minute", asked)
	}
}

// A reflector takes a watch that ends at once for a failure.
func TestAWatchThatEndsAtOnceIsNoFailure(t *testing.T) {
	watched := 0
	lasted := make(chan struct{})
	source := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &corev1.PodList{}, nil },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
			}
			w := watch.NewFake()
			if watched++; watched < 4 {
				w.Stop()
			} else {
				close(lasted)
			}
			return w, nil
		},
	}
	go cache.NewReflectorWithOptions(enduring.over(source), &corev1.Pod{}, cache.NewStore(cache.MetaNamespaceKeyFunc), cache.ReflectorOptions{
		Backoff: &wait.Backoff{Duration: time.Hour, Steps: 10},
	}).RunWithContext(t.Context())
	select {
	case <-lasted:
	case <-time.After(time.Minute):
		t.Fatalf("watched %d times in a minute", watched)
	}
}

func TestAWatchPassesOnWhatItIsToldUntilItIsStopped(t *testing.T) {
	source := watch.NewFake()
	w := endurance{least: time.Hour}.lasting(source)
	go source.Add(&corev1.Pod{})
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Errorf("heard %v", event)
	}
	source.Stop()
	w.Stop()
	if event, ok := <-w.ResultChan(); ok {
		t.Errorf("heard %v", event)
	}
}

// What a reflector is told, it is told after it has forgotten what it was told before.
func TestAttemptsOutlastTheMemoryOfAReflector(t *testing.T) {
	total, pause := time.Duration(0), enduring.first
	for range enduring.attempts {
		total += pause
		pause = min(2*pause, enduring.longest)
	}
	if total <= 2*time.Minute {
		t.Errorf("%s", total)
	}
}
