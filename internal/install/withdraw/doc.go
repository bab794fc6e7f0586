// Package withdraw takes the protection of claims back, so that nothing is left
// in a cluster that only Lockstep would ever take away.
//
// It knows claims, the pods that use them, namespaces and gated pods, and needs
// no operator: it follows the operator's own protocol for claims that are on their
// way out. It refuses to know what gives finalizers and what refuses deletions:
// its caller has put an end to both.
package withdraw
