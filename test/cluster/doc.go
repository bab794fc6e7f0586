// Package cluster drives the built binaries on the local control plane: a real API server,
// StatefulSet controller, garbage collector and scheduler, simulated nodes, and lockstep as a
// process of its own.
//
// It knows what a user can see: objects, events, the audit log. It refuses to know the operator's
// inside.
//
// # How it works
//
// One control plane and one operator serve all tests. Each test has a namespace and a recorder,
// which remembers every object of the namespace by UID, deleted ones too. The audit log has the
// writes of each client. Tests that break the control plane run one at a time; the others run side
// by side after them. A child process, the reaper, ends everything when the test binary ends.
//
// # Running one drill by hand
//
//	make build
//	go test ./test/cluster -run 'TestRecreate/background$' -v
//	go test ./test/cluster -run 'TestRecreateSurvives/operator_killed/foreground' -v
//
// Variables:
//
//	LOCKSTEP_BIN=DIR      where lockstep and lockstep-local are (default ../../bin)
//	LOCKSTEP_ROUNDS=N     rounds of delete-and-create per mode (default 2); a drill with a fault
//	                      runs half as many, but in a soak
//	LOCKSTEP_SOAK=1       run drills one at a time, and drills with a fault in full
//	LOCKSTEP_SEED=N       the seed of the random moments, as a failed run printed it
//	LOCKSTEP_KEEP=DIR     put logs and the audit log into DIR and leave them there
//
// "make test" runs TestSmoke, one drill for each promise, in about five minutes. "make drills" runs
// all the others.
package cluster
