// Package webhook answers the API server's admission requests over HTTP.
//
// It knows paths, requests, answers and patches, which leave fields that our types lack as
// they are. It refuses to know the rules of the LeaderWorkerSet API: those are pure
// functions in internal/lws/admission. It never writes.
package webhook
