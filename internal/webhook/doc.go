// Package webhook answers the API server's admission requests over HTTP.
//
// It knows paths, envelopes and patches: how a request is read, how an answer is
// worded, and how a change is told without touching what it does not
// understand. It refuses to know any rule of the LeaderWorkerSet API; those are
// pure functions in internal/lws/admission. It reads and writes no cluster.
package webhook
