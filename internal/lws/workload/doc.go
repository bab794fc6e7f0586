// Package workload builds the StatefulSets, Services and pods of a LeaderWorkerSet, and
// reads from such objects what they were built for.
//
// It is pure: it knows the contract of labels and annotations, and refuses to know which
// objects exist and when one is to be written.
package workload
