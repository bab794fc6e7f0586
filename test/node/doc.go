// Package node runs the built binaries with a real kubelet and a real containerd on this
// machine, joined to a local control plane. It drills containers that end, disks that keep
// their data, names that pods dial, and a node that is lost. Package cluster drills everything
// else with simulated kubelets.
//
// It knows what a user can see, and what the administrator of a node can do. It refuses to
// know the internals of the operator, and imports no package from internal.
//
//	make node                                             needs root, containerd, runc, CNI plugins
//	make node NODEFLAGS='-run TestAClaimInUse$ -v'
//	make incarnations                                     100 groups are replaced while old workers dial
//	LOCKSTEP_KEEP=DIR make node                           logs and disks stay in DIR
//
// All processes run in their own Linux namespaces and control groups, which end with the run,
// however it ends; see stage_test.go. The test builds the only image, and pulls none.
package node
