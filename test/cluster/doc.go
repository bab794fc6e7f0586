// Package cluster drives the built binaries on the local control plane, end to
// end: a real API server, the real StatefulSet controller, garbage collector and
// scheduler, simulated nodes, and lockstep as a process of its own.
//
// It knows what a user can see: objects, events, the audit log. It refuses to
// know anything of the operator's inside: nothing here imports from internal.
//
// # How it works
//
// One control plane and one operator serve the whole test binary. Every test has
// a namespace of its own and a recorder, which watches that namespace from before
// the first action on and remembers every object by UID, gone ones too; so a test
// can say how many pods were ever created, not only how many there are. The audit
// log says who wrote what. Tests that break the control plane run one at a time;
// the others run side by side after them.
//
// A child process, the reaper, takes everything down when the test binary ends,
// however it ends.
//
// # Running one drill by hand
//
//	make build
//	go test ./test/cluster -run 'TestRecreateBackground$' -v
//	go test ./test/cluster -run 'TestRecreateSurvives/operator_killed/Foreground' -v
//
// What can be set:
//
//	LOCKSTEP_BIN=DIR      where lockstep and lockstep-local are (default ../../bin)
//	LOCKSTEP_ROUNDS=N     rounds of delete-and-create per mode (default 2); a drill
//	                      with a fault runs half as many, but in a soak
//	LOCKSTEP_SOAK=1       assert the time bounds too; without it they are only logged
//	LOCKSTEP_SEED=N       the seed of the random moments, as a failed run printed it
//	LOCKSTEP_KEEP=DIR     put logs and the audit log into DIR and leave them there
//
// "make test" runs TestSmoke, one drill for each promise, in about five minutes.
// "make drills" runs all the others.
package cluster
