// Package interleave runs the code that releases PVCs against all other clients, in random orders.
//
// The finalizer controller is the real one, with its queue, its informer of pods, its reads and its
// writes. So are the controller of mode strict, which lifts gates, and the scheduler plugin, which
// records pods on their PVCs. Time is that of package synctest. These are stand-ins:
//
//	store     an API server that is linearizable
//	wire      every request waits on it until the schedule lets it arrive
//	informer  a cache that learns of each change when the schedule says
//	builtIn   the built-in protection of PVCs, as it was observed
//	kubelets  those of package kubelet
//
// Two laws hold. A PVC exists while an existing pod has it mounted. Where pods are recorded on
// their PVCs before they are bound, the PVC with that UID exists while the pod that was bound does.
//
// A schedule is a list of numbers; each chooses one of the steps that may happen next. Steps happen
// one after the other: goroutines are idle before the next one is chosen.
package interleave
