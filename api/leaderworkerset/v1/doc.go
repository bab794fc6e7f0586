// Package v1 holds the types of leaderworkerset.x-k8s.io/v1: what a user writes
// about a set of groups of pods, and what the operator reports back.
//
// It knows the wire format and nothing else: which fields there are, how they
// are named, which of them are left out when empty. It refuses to know what any
// of them does; behaviour lives above, in packages that import this one. It
// imports apimachinery and the core API types only, so that a client can use it
// without taking on the operator.
//
// The wire format is shared with every other implementation of this API. A JSON
// tag that lost or gained an omitempty would change the bytes from which the
// revision of a set is computed, and so restart every pod of every set.
//
// +kubebuilder:object:generate=true
// +groupName=leaderworkerset.x-k8s.io
package v1
