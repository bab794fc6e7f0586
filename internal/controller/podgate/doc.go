// Package podgate lets a pod to the scheduler once it is written on its claims.
//
// In mode strict pods that use claims are created with a scheduling gate. The API
// server binds no pod that has one, so whichever scheduler there is:
//
//	created, gated ─► claims read live ─► pod written on each ─► gate lifted ─► scheduled
//	                        │  missing, terminating
//	                        ▼
//	                 told, and looked at again when a claim changes
//
// It knows which events concern which pods, and in which order to read and write.
// It refuses to know when a claim may be used, and what stands in its record. Pods
// are taken off records where finalizers are seen to.
package podgate
