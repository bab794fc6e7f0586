// Package interleave runs the code that releases claims against everybody else, in
// every order that chance comes upon.
//
// The finalizing controller is the real one, with its backlog, its watch of pods,
// its readings and its writes; so are the controller of mode strict, which lifts
// gates, and the plugin of the scheduler, which writes pods on their claims. Real as
// well are time and the rest of what they stand on, but these, which are stand-ins:
//
//	store     an API server that is linearizable, and nothing else
//	wire      every request waits on it until the schedule lets it arrive
//	informer  a cache that learns of each change when the schedule says
//	builtIn   the controller manager's protection of claims, by what it was seen to do
//	kubelets  as in package kubelet
//
// Two laws hold. A claim is not gone while a pod that is there has it mounted; and where
// pods are written on their claims before they are bound, a claim is not gone, nor
// another of its name in its place, while a pod that was bound on it is there.
//
// A schedule is a row of bytes; each chooses the next of the steps that may happen.
// What happens at the same time in the world is here one after the other, and all
// that is asynchronous has come to rest before the next step is chosen.
package interleave
