// Package pvc decides what becomes of a claim that somebody wants deleted:
// whether it is in use, who holds it, and when its finalizers may go.
//
//	          somebody uses or wants it          the last holder goes
//	Free ────────────────────────────► Held ────────────────────────► Cooling ──grace──► Free
//	 │ DELETE                           │ DELETE is refused, or got through
//	 ▼                                  ▼
//	Draining: terminating; P, then B go when nobody is bound to it    Doomed: the same, and a workload still wants it
//
// It knows pods, workloads and the words on a claim. It refuses to know how they
// were read and how a decision is carried out. Evidence from a cache can only say
// "in use": what takes a finalizer away can be made from a LiveView alone, and a
// LiveView only from pods that were read after the claim was seen terminating.
package pvc
