// Package survey reads one set for kubectl lockstep: the set, its groups, and what the operator would do.
//
// It reads through the operator's lwscache and decides with the operator's functions, with the user's
// credentials. It refuses to write, and does not know how a survey is shown. What an operator remembers
// between reads, it derives from the objects: see recall.go.
package survey
