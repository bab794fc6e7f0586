package observe

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// shareFor is how long a live reading of a namespace is shared. Many claims are given
	// up together, and what is said to the namespace meanwhile comes a moment too late.
	shareFor = 250 * time.Millisecond
	// shared bounds the namespaces of which a reading is kept.
	shared = 64
)

// Namespace is a namespace as the cache shows it; one that is not there has no words.
// That may be late, or of a life under the name that is over: something can be asked
// for by it, and nothing given up. It must not be changed.
func (c *Claims) Namespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	return namespaceFrom(ctx, c.cached, name)
}

// NamespaceNow is a namespace as the API server shows it; one that is not there has no
// words. What is in it and was seen before belongs to that very life, or is gone.
func (c *Claims) NamespaceNow(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	return namespaceFrom(ctx, c.live, name)
}

// NamespaceOf is NamespaceNow for claims of that namespace, all seen before: a reading
// may be shared with others that were seen before it, and must not be changed.
func (c *Claims) NamespaceOf(ctx context.Context, name string, claims []types.UID, now time.Time) (*metav1.PartialObjectMetadata, error) {
	r := c.readings.of(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tells(claims, now) {
		return r.namespace, nil
	}
	seen, err := c.In(ctx, name)
	if err != nil {
		return nil, err
	}
	namespace, err := c.NamespaceNow(ctx, name)
	if err != nil {
		return nil, err
	}
	r.namespace, r.begun, r.seen = namespace, now, map[types.UID]bool{}
	for i := range seen {
		r.seen[seen[i].UID] = true
	}
	for _, uid := range claims {
		r.seen[uid] = true
	}
	return namespace, nil
}

func namespaceFrom(ctx context.Context, reader client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := NewNamespace(name)
	err := reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read namespace %q: %w", name, err)
	}
	return namespace, nil
}

// readings are the last live ones of namespaces.
type readings struct {
	mu  sync.Mutex
	all *lru.Cache
}

func newReadings() *readings { return &readings{all: lru.New(shared)} }

// of is the last reading of a namespace, which may be yet to come.
func (r *readings) of(name string) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.all.Get(name); ok {
		return last.(*reading)
	}
	first := &reading{}
	r.all.Add(name, first)
	return first
}

// reading is one live reading of a namespace, and the claims that were seen in it
// before that began: it tells of no other, which may belong to the life after.
type reading struct {
	mu        sync.Mutex
	namespace *metav1.PartialObjectMetadata
	begun     time.Time
	seen      map[types.UID]bool
}

func (r *reading) tells(claims []types.UID, now time.Time) bool {
	if r.namespace == nil || now.Sub(r.begun) >= shareFor {
		return false
	}
	for _, uid := range claims {
		if !r.seen[uid] {
			return false
		}
	}
	return true
}
