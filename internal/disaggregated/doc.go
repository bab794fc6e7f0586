// Package disaggregated says what a DisaggregatedSet consists of: the names, labels and revision of its children, and one
// row for each role of each slice at each revision.
//
// It is pure. It refuses to know when a child changes: package set decides that, and package planner how far.
//
// Files, each of which builds on those before it: names.go, revision.go, child.go, snapshot.go, group.go, role.go, table.go.
package disaggregated
