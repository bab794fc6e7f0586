// Package fakeapi is an API server in memory, for tests that drive production code.
//
// It knows UIDs, resourceVersions, generations, preconditions, finalizers, merge
// patches and server-side apply, as far as the operator uses them. Control adds the
// StatefulSet controller, the garbage collector and a kubelet; Set and Pod build objects.
// It refuses to know which write is right, and runs nothing on its own.
package fakeapi
