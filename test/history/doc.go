// Package history records the versions of PVCs and pods from two watches, in the order of
// their resourceVersions, which is the only certain order. It judges afterwards, from the
// record alone, whether a law was broken: no clock and no cache takes part.
//
//	lost      a PVC is gone while a pod that exists has it mounted
//	stray     in modes with use records: a pod was bound, or its gate was removed,
//	          before its PVCs named it in their record; or such a PVC is gone while
//	          the pod exists
//	unheeded  a PVC had the annotation of holders, and its deletion began
//
// The test's kubelet records on the pod which PVCs it has mounted. The package knows stored
// objects. It refuses to know which client wrote them.
package history
