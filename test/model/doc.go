// Package model holds the protocol by which a claim in use is kept, small enough
// to be searched to the end: one claim and its next life, one pod, the owner of
// each finalizer with caches of its own that lag as they like, and a search that
// tries every order of steps and returns the shortest one that loses data.
//
//	user        DELETE, and a claim or a pod of the same name after it
//	scheduler   may bind whenever it likes, unless it writes a use record first
//	kubelet     reads the claim live, then mounts
//	pod         may be deleted at any time; its node lets go of the volume first
//	owner of P  the built-in controller, or ours in its place
//	owner of B  ours, at times two that know nothing of each other
//
// What refuses a DELETE is a model of its own, hold_*.go: one claim and its next life, a
// workload that comes and goes, people who release and wish, the policies, and an operator
// that keeps the words on the claim true.
//
// It knows the rules as switches, so that each can be taken away and the search
// asked what that breaks. It refuses to know objects, clients and time; that the
// rules are those of the code is shown by a test that puts one to the other.
package model
