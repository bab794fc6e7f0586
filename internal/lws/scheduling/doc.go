// Package scheduling keeps the objects by which Kubernetes' own scheduler knows the groups of a set.
//
// It knows the Workload, its PodGroups and the condition about them. It refuses to know how leaders and workers are
// created, and what a PodGroup contains: package gang does.
//
// Files, each of which builds on those before it: workload.go, scheduler.go.
package scheduling
