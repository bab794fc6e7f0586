// Package model searches every order of steps of two protocols, and returns the shortest one
// that loses data: how a PVC in use is kept (finalizer_*.go), and how its DELETE is refused
// (hold_*.go).
//
//	user        DELETE, and a PVC or a pod of the same name after it
//	scheduler   binds at any time; with use records, it writes the record first
//	kubelet     reads the PVC live, then mounts
//	pod         is deleted at any time; its node unmounts the volume first
//	built-in    the controller of Kubernetes, owner of P
//	ours        owner of B, and of P without the built-in controller
//
// Our decisions are those of package pvc, called with what the caches and reads of the model
// show. The rules are switches of the world around them: each can be removed, to search what
// breaks then.
package model
