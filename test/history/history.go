package history

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// History is what is told of claims and pods, from when it was begun.
type History struct {
	mu       sync.Mutex
	versions map[string][]Version // by namespace
	gone     map[types.UID]bool
	more     chan struct{} // closed and made anew with every version
	err      error
}

// Begin begins a history, which is told until ctx ends.
func Begin(ctx context.Context, client kubernetes.Interface) (*History, error) {
	h := &History{versions: map[string][]Version{}, gone: map[types.UID]bool{}, more: make(chan struct{})}
	core := client.CoreV1()
	pods, err := core.Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	for _, follow := range []func(metav1.ListOptions) (watch.Interface, error){
		func(o metav1.ListOptions) (watch.Interface, error) { return core.Pods("").Watch(ctx, o) },
		func(o metav1.ListOptions) (watch.Interface, error) {
			return core.PersistentVolumeClaims("").Watch(ctx, o)
		},
	} {
		go h.follow(ctx, pods.ResourceVersion, follow)
	}
	return h, nil
}

// follow watches on from where the last watch ended: nothing may be missed.
func (h *History) follow(ctx context.Context, from string, follow func(metav1.ListOptions) (watch.Interface, error)) {
	for ctx.Err() == nil {
		w, err := follow(metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
		if err != nil {
			h.fail(err)
			return
		}
		for event := range w.ResultChan() {
			at, err := h.hear(event)
			if err != nil {
				h.fail(err)
				return
			}
			from = at
		}
	}
}

func (h *History) hear(event watch.Event) (at string, err error) {
	object, ok := event.Object.(metav1.Object)
	if !ok {
		return "", fmt.Errorf("the watch says %s: %v", event.Type, event.Object)
	}
	at = object.GetResourceVersion()
	if event.Type == watch.Bookmark {
		return at, nil
	}
	number, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		return "", err
	}
	h.take(versionOf(event.Object, number, event.Type == watch.Deleted), object)
	return at, nil
}

func versionOf(object runtime.Object, at uint64, gone bool) Version {
	v := Version{At: at, Gone: gone}
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		v.Claim = o
	case *corev1.Pod:
		v.Pod = o
	}
	return v
}

func (h *History) take(v Version, object metav1.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions[object.GetNamespace()] = append(h.versions[object.GetNamespace()], v)
	if v.Gone {
		h.gone[object.GetUID()] = true
	}
	h.wake()
}

func (h *History) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	h.wake()
}

func (h *History) wake() {
	close(h.more)
	h.more = make(chan struct{})
}

// Until waits until it has been told that all of the objects are gone. It returns what
// was told of the namespace, and forgets it then.
func (h *History) Until(ctx context.Context, namespace string, gone []types.UID) ([]Version, error) {
	for {
		versions, left, more, err := h.now(namespace, gone)
		if err != nil || left == 0 {
			return versions, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return versions, fmt.Errorf("%d of %d objects are not gone: %w", left, len(gone), ctx.Err())
		}
	}
}

// Told is what was told of a namespace so far.
func (h *History) Told(namespace string) ([]Version, error) {
	versions, _, _, err := h.now(namespace, []types.UID{""}) // one that never goes
	return slices.Clone(versions), err
}

func (h *History) now(namespace string, gone []types.UID) (versions []Version, left int, more <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, uid := range gone {
		if !h.gone[uid] {
			left++
		}
	}
	versions = h.versions[namespace]
	if left == 0 {
		delete(h.versions, namespace)
		for _, uid := range gone {
			delete(h.gone, uid)
		}
	}
	return versions, left, h.more, h.err
}
