// Package restart decides when a group failed and is recreated, and records it.
//
// It knows restart policies, the evidence of failures, the back-off, and the fields of
// the status that hold them. It is pure, and refuses to know which revision a leader has.
//
// Files, each of which builds on those before it: failure.go, record.go, budget.go, evidence.go,
// decision.go, group.go, status.go.
package restart
