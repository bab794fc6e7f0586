// Package node drives the built binaries against a real kubelet and a real containerd on
// this machine, joined to a local control plane: containers that end, disks that keep what
// was written, a node that is lost. Everything else is drilled in package cluster, where
// kubelets are simulated.
//
// It knows what a user can see, and what a node's administrator can do. It refuses to know
// anything of the operator's inside: nothing here imports from internal.
//
//	make node                                             needs root, containerd, runc, CNI plugins
//	make node NODEFLAGS='-run TestAClaimInUse$ -v'
//	LOCKSTEP_KEEP=DIR make node                           logs and disks stay in DIR
//
// What runs is in namespaces and control groups of its own, which end with the run, however
// it ends; see stage_test.go. Nothing is pulled: the one image is made here.
package node
