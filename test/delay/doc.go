// Package delay is a proxy between an API server and one component of a cluster. It
// delays requests, answers and events of watches until a test releases them. So a
// test runs a race step by step that takes a millisecond in a real cluster.
//
//	component ──► Proxy ──────────────► API server
//	               │ Hold(Requests, …)      the API server has done nothing yet
//	               │ Hold(Answers, …)       the API server has done it, no client knows
//	               │ Hold(Streams, …)       informers lag
//	               │ Disturb(…)             anything waits or fails at random
//
// It knows requests by verb, resource, namespace and name. It refuses to know
// their bodies, and changes none.
package delay
