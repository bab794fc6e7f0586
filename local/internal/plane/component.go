// Package plane knows the local control plane: which processes it is made of, how each is configured, and how they are
// brought up, observed, hurt and taken down. It refuses to know the programs' code: it starts them by name from one
// executable.
package plane

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep.dev/lockstep/local/internal/process"
	"lockstep.dev/lockstep/local/stages"
)

// Component names one process of the control plane.
type Component string

// The components, by the names their projects give them.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kwok              Component = "kwok"
)

// Components is all of them, in the order in which they need each other.
var Components = []Component{Etcd, APIServer, ControllerManager, Scheduler, Kwok}

// Validate refuses what is no name of a component.
func (c Component) Validate() error {
	if !slices.Contains(Components, c) {
		return fmt.Errorf("unknown component %q: it is one of %s", c, list(Components))
	}
	return nil
}

func list(components []Component) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(components)), ", "), "[]")
}

// Settings are what a user may choose about a cluster. They are remembered: a component comes back as it was.
type Settings struct {
	// Nodes is the number of simulated nodes.
	Nodes int `json:"nodes"`
	// Audit writes one line of metadata per finished request.
	Audit bool `json:"audit"`
	// ControllerQPS is the controller manager's client limit in queries a second. Its burst is half as much again.
	ControllerQPS int `json:"controllerQPS"`
	// Stages names the pod stages of kwok.
	Stages string `json:"stages"`
	// Kubelet lets kwok stand in for kubelets where logs are read and commands are run.
	Kubelet bool `json:"kubelet,omitempty"`
	// FeatureGates holds for the API server, controller manager and scheduler.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// RuntimeConfig switches APIs on or off as --runtime-config of the API server does: GROUP/VERSION/RESOURCE=false.
	RuntimeConfig []string `json:"runtimeConfig,omitempty"`
	// DisableAdmission lists admission plugins to switch off.
	DisableAdmission []string `json:"disableAdmission,omitempty"`
	// Egress is the Unix socket of an HTTP CONNECT proxy, through which the API server reaches
	// Services and kubelets of nodes that have a network of their own.
	Egress string `json:"egress,omitempty"`
	// Controllers selects controllers as --controllers does: "*" is all default ones, "-x" is all but x.
	Controllers []string `json:"controllers"`
	// Replay is set for a cluster that has the objects of a report, and no controllers.
	Replay bool `json:"replay,omitempty"`
}

// components are those of a cluster with these settings.
func (s Settings) components() []Component {
	if s.Replay {
		return []Component{Etcd, APIServer}
	}
	return Components
}

// DefaultSettings are those of a stock cluster with twenty nodes.
func DefaultSettings() Settings {
	return Settings{Nodes: 20, ControllerQPS: 20, Stages: stages.Guarded, Controllers: []string{"*"}}
}

// MaxNodes bounds a cluster to what one small machine can still simulate.
const MaxNodes = 5000

// Validate refuses settings that no cluster can have, all of them at once. The components refuse
// unknown gates, plugins and controllers themselves.
func (s Settings) Validate() error {
	var problems []error
	if s.Nodes < 0 || s.Nodes > MaxNodes {
		problems = append(problems, fmt.Errorf("--nodes %d: give a number from 0 to %d", s.Nodes, MaxNodes))
	}
	if s.ControllerQPS < 1 {
		problems = append(problems, fmt.Errorf("--kcm-qps %d: give at least 1 query per second", s.ControllerQPS))
	}
	if !slices.Contains(stages.Names, s.Stages) {
		problems = append(problems, fmt.Errorf("--stages %q: give one of %s", s.Stages, strings.Join(stages.Names, ", ")))
	}
	return errors.Join(problems...)
}

// tailLines is how much of a component's log an error carries.
const tailLines = 12

// failure is the error of a component that did not do what it was started for, with what it logged last.
func failure(l Layout, c Component, what string) error {
	tail := process.Tail(l.Log(c), tailLines)
	if len(tail) == 0 {
		return fmt.Errorf("%s %s\n  it wrote nothing to %s", c, what, l.Log(c))
	}
	return fmt.Errorf("%s %s\n  its last lines, from %s:\n    %s", c, what, l.Log(c), strings.Join(tail, "\n    "))
}

// errNoCluster is the error of every command but up and down in a directory without a cluster.
func errNoCluster(l Layout) error {
	return fmt.Errorf("no cluster in %q: bring one up with: lockstep-local up --dir %s", l.Dir, l.Dir)
}
