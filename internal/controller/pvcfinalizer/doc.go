// Package pvcfinalizer sees to the finalizers of claims: gives them to claims that
// live without, and takes them, one step at a time, from those that are on their
// way out and that nobody uses.
//
// It knows what events concern which claims, and in which order to look, judge and
// write. It refuses to know when a claim is in use, and when a finalizer may go.
//
//	claim, pod, namespace ─► backlog ─► claims of one namespace ─► Decide, by the caches
//	                            ▲                                     │ Look
//	                            │                                     ▼
//	                     retry, stale ◄── act.Do ◄── Judge ◄── one reading of pods, begun now
package pvcfinalizer
