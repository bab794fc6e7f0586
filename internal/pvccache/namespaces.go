package pvccache

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sharedNamespaces bounds the namespaces of which a reading is kept.
const sharedNamespaces = 64

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
// may be shared with others that were seen before it, and must not be changed. It is
// shared only where the cache shows that very version or an older one: what is newer than
// the cache comes as an event, and what comes after it; an older one would be the last word.
func (c *Claims) NamespaceOf(ctx context.Context, name string, claims []types.UID, now time.Time) (*metav1.PartialObjectMetadata, error) {
	cached, err := c.Namespace(ctx, name)
	if err != nil {
		return nil, err
	}
	return c.namespaces.in(name).of(inquiry[*metav1.PartialObjectMetadata]{
		claims: claims, now: now,
		fits: func(read *metav1.PartialObjectMetadata) bool {
			return isAsNew(read.ResourceVersion, cached.ResourceVersion)
		},
		seen: func() ([]types.UID, error) { return c.seenIn(ctx, name) },
		read: func() (*metav1.PartialObjectMetadata, error) { return c.NamespaceNow(ctx, name) },
	})
}

// isAsNew tells whether a version is no older than another. That of what is not there is
// older than none.
func isAsNew(version, other string) bool {
	if version == other {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order >= 0
}

// seenIn are the claims of a namespace that the cache shows.
func (c *Claims) seenIn(ctx context.Context, namespace string) ([]types.UID, error) {
	claims, err := c.In(ctx, namespace)
	if err != nil {
		return nil, err
	}
	uids := make([]types.UID, len(claims))
	for i := range claims {
		uids[i] = claims[i].UID
	}
	return uids, nil
}

func namespaceFrom(ctx context.Context, reader client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := NewNamespace(name)
	err := reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read namespace %q: %w", name, err)
	}
	return namespace, nil
}
