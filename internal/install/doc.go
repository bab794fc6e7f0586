// Package install is "lockstep install" and "lockstep uninstall": it puts Lockstep into a
// cluster and takes it out again.
//
// It knows the embedded manifests, the order in which they are applied and deleted, and
// what another implementation may have left under the same names. It refuses to know what
// the installed objects do. It never writes a LeaderWorkerSet: sets block an uninstall.
package install
