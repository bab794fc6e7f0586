// Package set decides about a LeaderWorkerSet: a snapshot in, a plan out.
//
// It has the rules of the set in order, its conditions and its status. It refuses to know what is inside a group beyond
// its row.
//
// Files, each of which builds on those before it: conditions.go, status.go, objects.go, disruption.go, decide.go.
package set
