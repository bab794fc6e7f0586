// Package survey looks at one set for people: the set, each of its groups, and
// what the operator would do about them now.
//
// It reads through the operator's own observer and decides with the operator's
// own functions, so that what is shown is what is done. It knows how to get at a
// cluster read-only and how to look at a spec that is not there yet. It refuses
// to write, and to know how a survey is shown.
//
// What an operator remembers between looks, such as when it first saw a ghost,
// cannot be read from the cluster. A survey decides as an operator would that
// knows only what the objects tell: see recall.go.
package survey
