package pvccache

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

const (
	// pageOfPods is how many pods one answer of a list holds.
	pageOfPods = 2000
	// reachWithin is how long a look waits for the watch of pods to catch up with the
	// API server, where a list would cost more than one answer.
	reachWithin = 250 * time.Millisecond
	// leastWait and waits bound that wait by the number of claims that share it: what a
	// list costs is the same for all of them, waiting each one pays for itself.
	leastWait = 50 * time.Millisecond
	waits     = 25 * time.Second
	// cheapList is how many pods a list costs less for than waiting would.
	cheapList = 500
)

// How a look was answered.
const (
	// ByWatch is an index that the watch is proved to have kept up to date.
	ByWatch = "watch"
	// ByList is all pods of the namespace.
	ByList = "list"
)

// Reading is what one look cost, and how it ended.
type Reading struct {
	By       string
	Duration time.Duration
	Err      error
}

// Looker reads pods for claims that are on their way out.
type Looker struct {
	pods *Pods
	// live must not read from a cache.
	live client.Reader
	now  func() time.Time
	told func(Reading)
	// watch is nil where lists are to be read whatever they cost.
	watch WatchPods

	mu     sync.Mutex
	listed map[string]listed
}

// NewLooker returns a Looker that asks live how far the cluster is, reads pods if
// they are that far, and live itself otherwise. It tells of every reading.
func NewLooker(pods *Pods, live client.Reader, now func() time.Time, told func(Reading)) *Looker {
	return &Looker{pods: pods, live: live, now: now, told: told, listed: map[string]listed{}}
}

// For returns what reads the pods for a batch, from now on.
func (l *Looker) For(ctx context.Context, batch pvc.Batch) pvc.Read {
	return func(namespace string, see func(*corev1.Pod)) error {
		begun, r := l.now(), Reading{By: ByWatch}
		fresh, err := l.fresh(ctx, namespace, len(batch.Names()))
		switch {
		case err != nil:
			r.Err = err
		case fresh:
			l.pods.using(namespace, batch.Names(), batch.Recorded(), see)
		default:
			r.By, r.Err = ByList, l.everything(ctx, namespace, batch, see)
		}
		r.Duration = l.now().Sub(begun)
		l.told(r)
		return r.Err
	}
}

// fresh tells whether the watch has seen everything that was in the cluster when
// it was called, for so many claims: what a list of one pod says of the version is not
// from a cache.
func (l *Looker) fresh(ctx context.Context, namespace string, claims int) (bool, error) {
	probe := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	if err := l.live.List(ctx, probe, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return false, fmt.Errorf("look how far pods are: %w", err)
	}
	within := patience(claims)
	if !l.pods.Large(namespace) {
		within = 0
	}
	if l.pods.reaches(ctx, probe.ResourceVersion, within) {
		return true, nil
	}
	return !l.mayList(namespace) && l.catchUp(ctx, namespace, probe.ResourceVersion), nil
}

// patience is how long so many claims wait for the watch.
func patience(claims int) time.Duration {
	return min(max(waits/time.Duration(max(claims, 1)), leastWait), reachWithin)
}

// list reads all pods of a namespace, page by page, of one moment.
func (l *Looker) list(ctx context.Context, namespace string, see func(*corev1.Pod)) error {
	next := ""
	for {
		page := &corev1.PodList{}
		if err := l.live.List(ctx, page, client.InNamespace(namespace), client.Limit(pageOfPods), client.Continue(next)); err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		for i := range page.Items {
			see(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}
