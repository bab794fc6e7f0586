// Package cli is kubectl lockstep: what its users type, and what they read when
// something is wrong.
//
// It knows flags, connections and how errors are told. What is looked at is
// package survey's, and of claims package inquiry's; how it reads is package
// report's. It writes to a cluster nothing but what the packages amend and release
// decide, when a user asks for it.
package cli
