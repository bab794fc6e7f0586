// Package model searches every order of steps of three protocols, and returns the shortest one
// that loses data, or a group. finalizer*.go is the protocol that keeps a PVC in use, hold*.go the
// one that refuses its DELETE, and drain.go the one by which drains take one group at a time.
//
//	user        deletes the PVC, and creates a PVC or a pod of the same name
//	scheduler   binds at any time; with use records, it writes the record first
//	kubelet     reads the PVC live, then mounts
//	pod         is deleted at any time; its node unmounts the volume first
//	built-in    the controller of Kubernetes, which removes P
//	ours        removes B, and without the built-in controller also P
//
// Package pvc decides, from the caches and reads of the model. The rules are switches of the
// world around it: a test removes one rule, and searches what breaks.
package model
