// Package lws has what the rules of a LeaderWorkerSet share: snapshots of a set and of a group, plans, and what both
// say of objects under names that they need.
//
// Snapshots are made by package lwscache. Package set decides about a set, and package group about one of its groups.
// Each takes a snapshot and returns a plan. Data flows through the packages in this order:
//
//	lws ─► table ─► scheduling ─► leaders ─► set
//	   └─► scheduling ─► group
//
// The package knows the contract of the API and the laws of incarnations. It refuses to know how the cluster is read or
// written, what time it is beyond the Now of a snapshot, and it never changes what a snapshot points to: those are the
// objects of a shared cache.
//
// Files, each of which builds on those before it: standing.go, fields.go, plan.go, snapshot.go, owner.go,
// pods.go, services.go, previous.go, touch.go.
package lws
