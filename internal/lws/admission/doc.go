// Package admission decides what may enter: it fills in what a user left out of
// a LeaderWorkerSet, refuses what can never work, warns of what will surprise,
// and completes the pods of a set as they are created.
//
// It knows the contract of the admission webhooks: which field gets which
// value, and which text refuses it. It refuses to know HTTP, certificates and
// the cluster: every function takes values and returns values, looks at nothing
// else, and costs no more than its input is large. What comes in may have
// bypassed every default and every schema; nothing here may panic on it.
package admission
