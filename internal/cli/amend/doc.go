// Package amend changes one set in one write, on behalf of a user: back to an
// earlier template, a restart, a pause.
//
// What to write is decided purely, from one look at the set and its revisions. The
// write names the incarnation and version that was looked at. If somebody was
// faster, it looks again, and goes on only if what it was decided on still holds.
// It knows nothing of flags and of how a result is shown, and it can write nothing
// but sets.
package amend
