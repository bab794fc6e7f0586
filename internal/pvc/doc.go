// Package pvc decides what becomes of a PVC that a user wants to delete: whether it is in use,
// what holds it, and when its finalizers go.
//
//	          a pod uses it, a workload wants it       the last holder is gone
//	Free ────────────────────────────► Held ────────────────────────► Cooling ──grace──► Free
//	 │ DELETE                           │ DELETE is refused, or was released
//	 ▼                                  ▼
//	Draining: terminating; P, then B go when no bound pod uses it    Doomed: the same, and a workload wants it
//
// It knows pods, workloads and the annotations of a PVC. It refuses to know how they are read,
// and how a decision is carried out. A cache can only say "in use": a Release comes from a
// LiveView alone, and a LiveView from pods that were read after the PVC was seen terminating.
package pvc
