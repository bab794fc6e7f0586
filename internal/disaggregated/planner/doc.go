// Package planner plans how the groups of a slice change: rollouts, scaling, undo and their mixture are one function from
// rows to the next counts.
//
// It knows how many groups each role may lose and add. It refuses to know objects, names and clocks, and it never waits
// for a time: the next event asks again.
//
// Files, each of which builds on those before it: slice.go, floors.go, drain.go, growth.go, next.go, course.go.
package planner
