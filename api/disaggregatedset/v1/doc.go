// Package v1 holds the types of disaggregatedset.x-k8s.io/v1: what a user writes
// about roles that serve together, and what the operator reports back.
//
// It knows the wire format and nothing else: which fields there are, how they
// are named, which of them are left out when empty. It refuses to know what any
// of them does; behaviour lives above, in packages that import this one. A role
// holds the specification of a LeaderWorkerSet, and so the types of that API.
//
// The wire format is shared with every other implementation of this API. The
// revision of a DisaggregatedSet is computed from some of its bytes.
//
// +kubebuilder:object:generate=true
// +groupName=disaggregatedset.x-k8s.io
package v1
