// Package pvccache reads what decisions about PVCs are made from: PVCs, the pods that use them, and
// the workloads that want them.
//
// It knows which reads are cached and which are live. It refuses to decide what holds a PVC, and it
// never writes.
package pvccache
