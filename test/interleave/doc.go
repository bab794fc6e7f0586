// Package interleave runs the code that releases claims against everybody else, in
// every order that chance comes upon.
//
// The finalizing controller is the real one, with its backlog, its watch of pods,
// its readings and its writes. So are time and the rest of what it stands on, but
// these, which are stand-ins:
//
//	store     an API server that is linearizable, and nothing else
//	wire      every request waits on it until the schedule lets it arrive
//	informer  a cache that learns of each change when the schedule says
//	builtIn   the controller manager's protection of claims, by what it was seen to do
//	kubelets  as in package kubelet
//
// A schedule is a row of bytes; each chooses the next of the steps that may happen.
// What happens at the same time in the world is here one after the other, and all
// that is asynchronous has come to rest before the next step is chosen.
package interleave
