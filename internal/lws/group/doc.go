// Package group decides about one group of a LeaderWorkerSet: a snapshot in, a plan out.
//
// It sees one leader and all objects that have the names of its workers. It has the rules of the group in order. It refuses to know
// the other groups of the set.
//
// Files, each of which builds on those before it: input.go, podgroup.go, workers.go, termination.go, restarts.go,
// decide.go.
package group
