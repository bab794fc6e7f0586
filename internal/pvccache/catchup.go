package pvccache

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// catchUpSeconds is how long a watch is asked for that is to tell how far it is:
	// the API server does so two seconds before the end.
	catchUpSeconds = 3
	// catchUpWithin bounds the wait for that.
	catchUpWithin = catchUpSeconds * time.Second
	// listShare and compareShare are how many times as long as it took a list of pods
	// is not read again, or one of their versions, while there is another way.
	listShare, compareShare = 20, 2
)

// WatchPods watches the pods of a namespace.
type WatchPods func(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error)

// CatchingUp has the Looker spare lists of large namespaces that are asked for again
// and again. A watch from where the memory stands shows what the memory has yet to
// see, and, without a pod being read, that there was nothing else.
func (l *Looker) CatchingUp(pods WatchPods) *Looker {
	l.watch = pods
	return l
}

// mayList tells whether a list is worth its cost: it is not, right after another.
func (l *Looker) mayList(namespace string) bool {
	if l.watch == nil || !l.pods.Large(namespace) {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.listed[namespace]
	return !ok || last.over(l.now())
}

// noteList remembers for how long a list that began then is enough, and forgets those
// that count no more.
func (l *Looker) noteList(namespace string, begun time.Time, share time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := l.now()
	maps.DeleteFunc(l.listed, func(_ string, last listed) bool { return last.over(ended) })
	l.listed[namespace] = listed{until: ended.Add(share * ended.Sub(begun))}
}

// listed is the last list of a namespace.
type listed struct{ until time.Time }

// over tells whether it was long enough ago to be read again.
func (l listed) over(now time.Time) bool { return !now.Before(l.until) }

// catchUp tells whether the memory of a namespace has seen everything up to a
// resource version: whether a watch from where it stands has come as far, and the
// memory has seen all that this watch has shown.
func (l *Looker) catchUp(ctx context.Context, namespace, version string) bool {
	ctx, cancel := context.WithTimeout(ctx, catchUpWithin)
	defer cancel()
	from, seconds := l.pods.version(), int64(catchUpSeconds)
	w, err := l.watch(ctx, namespace, metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		return false
	}
	defer w.Stop()
	last := from
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return false // an error: the version is too old, or worse
		}
		if event.Type != watch.Bookmark {
			last = pod.ResourceVersion
		}
		if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, version); err != nil {
			return false
		} else if order >= 0 {
			return l.pods.reaches(ctx, last, reachWithin)
		}
	}
	return false
}
