// Package cli is kubectl lockstep: its commands, flags, connections and errors.
//
// Package survey reads sets, package inquiry reads PVCs, and package report renders both. Only the
// packages amend and release write.
package cli
