// Package fakeapi is an API server in memory, for tests that drive production code.
//
// It knows UIDs, resource versions, generations, preconditions, finalizers, merge
// patches and server-side apply, as far as the operator uses them. It refuses to know
// which write is right, and it has no controllers: test/lwstest has those.
package fakeapi
