package pvccache

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

func namespaceFrom(ctx context.Context, reader client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := NewNamespace(name)
	err := reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read namespace %q: %w", name, err)
	}
	return namespace, nil
}
