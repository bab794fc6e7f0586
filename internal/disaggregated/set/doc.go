// Package set decides about a DisaggregatedSet: a snapshot in, a plan out.
//
// It has the rules of the set in order, and its status. It refuses to know how many groups a step may move: package
// planner does.
//
// Files, each of which builds on those before it: input.go, names.go, scaler.go, children.go, service.go, history.go,
// partner.go, traffic.go, conditions.go, status.go, decide.go.
package set
