package cluster

import (
	"lockstep.dev/lockstep/test/drill"
)

// controllerManagerQPS lifts the ceiling that the stock setting of 20 puts on
// every StatefulSet: tests are to wait for lockstep, not for a rate limiter.
const controllerManagerQPS = 200

// nodes is how many nodes are simulated.
const nodes = 20

const patience = drill.Patience

// Components of the control plane that a drill may kill or restart.
const (
	apiServer         = drill.APIServer
	controllerManager = drill.ControllerManager
	scheduler         = drill.Scheduler
)

// controlPlane, operator and auditLog are those of drill, by this package's names.
type (
	controlPlane struct{ *drill.Plane }
	operator     struct{ *drill.Operator }
	auditLog     struct{ *drill.Audit }
	request      = drill.Request
)

func (p *controlPlane) kubeconfig() string          { return p.Kubeconfig() }
func (p *controlPlane) auditLog() string            { return p.AuditLog() }
func (p *controlPlane) kill(component string) error { return p.Kill(component) }
func (p *controlPlane) restart(component string, flags ...string) error {
	return p.Restart(component, flags...)
}

func (o *operator) start(flags ...string) error { return o.Start(flags...) }
func (o *operator) kill() error                 { return o.Kill() }
func (o *operator) check() error                { return o.Check() }
func (o *operator) pid() int                    { return o.PID() }

func (a *auditLog) sync() error                                         { return a.Sync() }
func (a *auditLog) writes(from int, match func(request) bool) []request { return a.Kept(from, match) }

// position is where the log stands, once all that was answered before is in it: what
// happened earlier does not count as happening since.
func (a *auditLog) position() int {
	_ = a.Sync() // it fails where the API server is away, and then so does whoever asks for what was written
	return a.Position()
}

// byLockstep tells the operator's requests from everybody else's.
func byLockstep(r request) bool { return drill.ByLockstep(r) }

func lastLines(path string, n int) string { return drill.LastLines(path, n) }

// kept are the writes of the operator, refused ones too, everybody's creation of
// pods, and what a scheduler writes on claims and binds.
func kept(r request) bool {
	return drill.IsWrite(r) && (drill.ByLockstep(r) || drill.CreatesPod(r) || schedules(r))
}

func program(name string) (string, error) { return drill.Program(name) }

func createsPod(r request) bool { return drill.CreatesPod(r) }
