// Package demo shows Lockstep at work on this machine: it brings a control plane
// and the operator up, runs an example, deletes it and creates it again in the
// same second, and checks everything that it shows.
//
// It knows the programs in one directory and the files in another, and ends only
// what it started. It refuses to know how any of those programs work.
package demo
