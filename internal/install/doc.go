// Package install is "lockstep install" and "lockstep uninstall": it puts
// Lockstep into a cluster and takes it out again.
//
// It knows the manifests the program carries, in which order they come and go,
// and how to take over what another implementation left under the same names.
// It refuses to know what the installed things do, and never touches a
// LeaderWorkerSet: where one is in the way, it says so and stops.
package install
