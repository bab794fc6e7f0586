package lws

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// publishing tells whether an update of a Service changed who it belongs to or what
// it publishes.
func publishing(before, after client.Object) bool {
	was, ok := before.(*corev1.Service)
	is, ok2 := after.(*corev1.Service)
	return !ok || !ok2 || belonging(before, after) || !reflect.DeepEqual(was.Spec, is.Spec) || !reflect.DeepEqual(was.Labels, is.Labels)
}
