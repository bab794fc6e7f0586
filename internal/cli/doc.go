// Package cli is kubectl lockstep: its commands, flags, connections and errors.
//
// Packages lws and pvc read and change the cluster, and package render shows what they find.
package cli
