// Package cli is kubectl lockstep: what its users type, and what they read when
// something is wrong.
//
// It knows flags, connections and how errors are told. What is looked at is
// package survey's, how it reads package report's. It writes nothing to a
// cluster.
package cli
