// Package v1alpha1 holds the types of config.lws.x-k8s.io/v1alpha1: the file an
// administrator hands to the operator with --config.
//
// It knows the wire format and the default of every field. It refuses to know
// how the file is read, how flags override it, and what any field does. Group,
// kind and field names are those of other implementations of the
// LeaderWorkerSet API, so that one file serves all of them.
//
// +kubebuilder:object:generate=true
// +groupName=config.lws.x-k8s.io
package v1alpha1
