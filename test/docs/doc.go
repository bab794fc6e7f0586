// Package docs runs the documentation: every command block of the README, the tutorial and the how-to pages, in
// order, as a reader would who begins at the top of the page.
//
// A page runs in one bash session, in a copy of the repository, on control planes of its own. What its reader already
// has, and what stands for a placeholder, is in the page's fixture, testdata/PAGE.sh. The parser finds the blocks: a
// new one is run, or named in the fixture with a reason.
//
// Ports are free ones, but where a page names the operator's own, 9443, 8443 and 8081, and Velero's 8080, which no flag
// changes.
//
// It knows what a reader sees. It refuses to know what a command prints: only that it ends well.
//
//	make docs
//	make docs DOCS=tutorial             one page
//	LOCKSTEP_KEEP=DIR make docs         scripts and their output stay in DIR
//
// Without LOCKSTEP_DOCS, which names the directory of the programs that a reader has, the package compares pages and
// fixtures alone.
package docs
