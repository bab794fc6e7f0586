package kinds

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Served returns the resource that the API server serves a kind as. The resource has no name
// if the kind is not served. Any version will do: first the given one, then the preferred one.
func Served(ctx context.Context, server rest.Interface, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	resource, err := servedIn(ctx, server, kind)
	if err != nil || resource.Resource != "" || kind.Group == "" {
		return resource, err
	}
	group := &metav1.APIGroup{}
	err = server.Get().AbsPath("/apis/" + kind.Group).Do(ctx).Into(group)
	if apierrors.IsNotFound(err) {
		return schema.GroupVersionResource{}, nil
	}
	for _, version := range append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...) {
		if err != nil || resource.Resource != "" || version.Version == "" || version.Version == kind.Version {
			continue
		}
		resource, err = servedIn(ctx, server, kind.GroupKind().WithVersion(version.Version))
	}
	return resource, err
}

func servedIn(ctx context.Context, server rest.Interface, kind schema.GroupVersionKind) (found schema.GroupVersionResource, err error) {
	list := &metav1.APIResourceList{}
	path := "/apis/" + kind.GroupVersion().String()
	if kind.Group == "" {
		path = "/api/" + kind.Version
	}
	err = server.Get().AbsPath(path).Do(ctx).Into(list)
	if apierrors.IsNotFound(err) {
		return found, nil
	}
	for i := range list.APIResources {
		if r := &list.APIResources[i]; r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
			found = kind.GroupVersion().WithResource(r.Name)
		}
	}
	return found, err
}
