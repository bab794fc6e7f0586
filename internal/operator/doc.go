// Package operator is "lockstep run": it turns flags and a configuration file
// into one running operator.
//
// It knows where settings come from and which one wins, what must exist before anything
// starts, the order of the start, and when the process is ready. It refuses to know what a
// controller decides and what a webhook answers.
//
//	flags > file > defaults ──► check what is needed ──► certificate ──► webhooks ──► caches ──► lease ──► controllers
package operator
