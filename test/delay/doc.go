// Package delay stands between an API server and one component of a cluster, and
// holds what passes until a test lets it go: requests on their way in, answers on
// their way out, events on a watch. So a race that takes a thousandth of a second
// in the wild is run step by step.
//
//	component ──► Proxy ──────────────► API server
//	               │ Hold(Requests, …)      nothing has happened yet
//	               │ Hold(Answers, …)       it has happened, and no client knows
//	               │ Hold(Streams, …)       informers lag
//	               │ Disturb(…)             anything waits or fails, by chance
//
// It knows requests by verb, resource, namespace and name. It refuses
// to know what is in them: nothing that passes is changed.
package delay
