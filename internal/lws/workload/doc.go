// Package workload builds the StatefulSets, Services and pods of a LeaderWorkerSet, and
// reads from such objects what they were built for.
//
// It is pure: it knows the contract of labels and annotations, and refuses to know which objects exist and when one is
// to be written. Accessors of a set return the defaults of the API: no rule depends on a webhook or a schema that
// filled them in. An orphan is judged by labels, and an object that has a controller by UIDs alone.
//
// Files, each of which builds on those before it: spec.go, labels.go, service.go, statefulset.go, placement.go,
// deployment.go, disruption.go, deadline.go.
package workload
