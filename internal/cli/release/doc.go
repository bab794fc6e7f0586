// Package release lets the deletion of one held claim, or of one namespace with
// held claims, through: the break-glass of protection.
//
// It decides from one live look whether there is anything to release, and writes
// one annotation onto exactly the incarnation and version that was looked at. It
// refuses to judge who holds a claim, which is package protect's, and to ask
// anybody anything: whoever calls it has.
package release
