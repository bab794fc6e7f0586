package pvccache

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

const (
	// pageOfPods is how many pods one page of a list holds.
	pageOfPods = 2000
	// reachWithin bounds how long a read waits for the informer to reach the API server.
	reachWithin     = 250 * time.Millisecond
	reachedAskEvery = 10 * time.Millisecond
	// cheapList is the number of pods up to which a list costs less than waiting.
	cheapList = 500
)

// How a read was answered.
const (
	// ByWatch is by the informer, which has reached the API server.
	ByWatch = "watch"
	// ByList is by a list of all pods of the namespace.
	ByList = "list"
)

// Reading is what one read cost, and how it ended.
type Reading struct {
	By       string
	Duration time.Duration
	Err      error
}

// Looker reads the pods of a namespace as they are now.
type Looker struct {
	pods *Pods
	// live must not read from a cache.
	live client.Reader
	now  func() time.Time
	told func(Reading)
}

// NewLooker returns a Looker that reports every read to told.
func NewLooker(pods *Pods, live client.Reader, now func() time.Time, told func(Reading)) *Looker {
	return &Looker{pods: pods, live: live, now: now, told: told}
}

// For returns a function that reads the pods that concern a batch.
func (l *Looker) For(ctx context.Context, batch pvc.Batch) pvc.Read {
	return func(namespace string, see func(*corev1.Pod)) error {
		begun, r := l.now(), Reading{By: ByList}
		fresh, err := l.fresh(ctx, namespace)
		switch {
		case err != nil:
			r.Err = err
		case fresh:
			r.By = ByWatch
			l.pods.using(namespace, batch.Names(), batch.Recorded(), see)
		default:
			r.Err = l.list(ctx, namespace, see)
		}
		r.Duration = l.now().Sub(begun)
		l.told(r)
		return r.Err
	}
}

// fresh reports whether the informer has seen everything that was in the API server
// when it was called. A list without a resourceVersion is not from a stale cache.
func (l *Looker) fresh(ctx context.Context, namespace string) (bool, error) {
	first := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	if err := l.live.List(ctx, first, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return false, fmt.Errorf("read the resourceVersion of pods: %w", err)
	}
	if reached := l.pods.reached(first.ResourceVersion); reached || !l.pods.IsLarge(namespace) {
		return reached, nil
	}
	err := wait.PollUntilContextTimeout(ctx, reachedAskEvery, reachWithin, true, func(context.Context) (bool, error) {
		return l.pods.reached(first.ResourceVersion), nil
	})
	return err == nil, nil
}

// reached reports whether the informer has seen everything up to a resourceVersion.
func (p *Pods) reached(version string) bool {
	order, err := resourceversion.CompareResourceVersion(p.informer.GetStore().LastStoreSyncResourceVersion(), version)
	return err == nil && order >= 0
}

func (l *Looker) list(ctx context.Context, namespace string, see func(*corev1.Pod)) error {
	err := pages(ctx, l.live, func(page *corev1.PodList) {
		for i := range page.Items {
			see(&page.Items[i])
		}
	}, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	return nil
}

// pages reads a whole list at one resourceVersion, page by page.
func pages[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, live client.Reader, see func(L), of ...client.ListOption) error {
	next := ""
	for {
		page := L(new(T))
		if err := live.List(ctx, page, append([]client.ListOption{client.Limit(pageOfPods), client.Continue(next)}, of...)...); err != nil {
			return err
		}
		see(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
