// Package table makes the table of a set: one row for each group, and what follows from the rows and the snapshot.
//
// It knows the effective spec, the revision that groups should be at, and what each group is. It refuses to know what
// makes the leaders: package leaders tells it through the interface Maker. It plans only what rules need first.
//
// Files, each of which builds on those before it: table.go, restarts.go, delays.go, pvcs.go, names.go,
// tabulate.go, disruption.go, deadline.go, target.go, effective.go, derive.go, roll.go.
package table
