// Package lws is the behaviour of a LeaderWorkerSet as pure functions: a snapshot in, a plan out.
//
// There are two of them. DecideSet sees the set, its leaders and the worker StatefulSets; DecideGroup sees one leader
// and everything that bears the names of its workers. Each is a list of rules in order of precedence, one law to a
// file.
//
// The package knows the contract of the API and the laws of incarnations. It refuses to know how the cluster is read or
// written, what time it is beyond the Now of a snapshot, and it never changes what a snapshot points to: those are the
// objects of a shared cache.
package lws
