// Package lwstest builds sets and what belongs to them, and keeps them in a fake
// of the API server, for tests.
//
// It knows what the API server does to what is written: UIDs, versions,
// generations, preconditions, finalizers. It refuses to know what ought to be
// written. Nothing but tests may import it.
package lwstest
