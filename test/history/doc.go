// Package history holds what the API server did to claims and pods, in the one order
// that is certain: that of resource versions, as two watches tell it. It judges what
// should never be from that alone, after the fact, so that no clock and no cache of
// the judge's has a part in it.
//
//	lost      a claim is gone, and a pod that is there has it mounted
//	stray     where pods are written on their claims before they are bound: one was
//	          bound, or its gate lifted, that was not; or its claim went while it was
//	          there
//	unheeded  a PVC had the annotation of holders, and its deletion began
//
// The test's kubelet records on the pod what it has mounted. The package knows objects as
// they were stored. It refuses to know which client wrote them.
package history
