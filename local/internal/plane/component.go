// Package plane knows the local control plane: which processes it is made of,
// how each is configured, and how they are brought up, observed, hurt and taken
// down. It refuses to know the programs' code: it starts them by name from one
// executable.
package plane

import (
	"fmt"
	"slices"
	"strings"
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

// ParseComponent reads a component's name.
func ParseComponent(name string) (Component, error) {
	if !slices.Contains(Components, Component(name)) {
		return "", fmt.Errorf("unknown component %q: it is one of %s", name, list(Components))
	}
	return Component(name), nil
}

func list(components []Component) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(components)), ", "), "[]")
}
