// Package amend changes one set in one write on behalf of a user: rollback, restart, pause, resume.
//
// A change is decided from the set and its revisions, and written to the resourceVersion that was
// read. It can write nothing but sets, and knows nothing of flags and output.
package amend
