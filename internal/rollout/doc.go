// Package rollout decides the partition and the number of replicas of a rolling update.
//
// It knows the table of the API and the budget of a set or a role, in groups. It is pure arithmetic, and refuses to know the
// objects that its numbers are of: whatever rolls groups within a budget may use it.
//
// Files, each of which builds on those before it: budget.go, replacement.go, partition.go.
package rollout
