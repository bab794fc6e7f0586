// Package cli is kubectl lockstep: its commands, flags, connections and errors.
//
// Package lws reads and changes sets, package inquiry reads PVCs, and package render shows both. Only the
// packages lws and release write.
package cli
