// Package leaders makes the leaders of a set: a StatefulSet in Ordinal sets, and a Deployment in Hash sets.
//
// It knows what differs between the two, rolling updates, and which gated leaders may be scheduled. It refuses to know
// workers beyond what a row says of them, and the status of the set.
//
// Files, each of which builds on those before it: apply.go, statefulset.go, deployment.go, replacement.go.
package leaders
