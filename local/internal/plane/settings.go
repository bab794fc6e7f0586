package plane

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep.dev/lockstep/local/stages"
)

// Settings are what a user may choose about a cluster. They are remembered with
// the cluster, so that a restarted component comes back as it was.
type Settings struct {
	// Nodes is the number of simulated nodes.
	Nodes int `json:"nodes"`
	// Audit writes one line of metadata per finished request.
	Audit bool `json:"audit"`
	// ControllerQPS is the controller manager's client limit, in queries per
	// second; its burst is one and a half times as much.
	ControllerQPS int `json:"controllerQPS"`
	// Stages names the pod stages of kwok.
	Stages string `json:"stages"`
	// FeatureGates holds for the API server, controller manager and scheduler.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// DisableAdmission lists admission plugins to switch off.
	DisableAdmission []string `json:"disableAdmission,omitempty"`
	// Controllers selects controllers as --controllers of the controller
	// manager does: "*" is all default ones, "-x" is all but x.
	Controllers []string `json:"controllers"`
}

// DefaultSettings are those of a stock cluster with twenty nodes.
func DefaultSettings() Settings {
	return Settings{Nodes: 20, ControllerQPS: 20, Stages: stages.Guarded, Controllers: []string{"*"}}
}

// MaxNodes bounds a cluster to what one small machine can still simulate.
const MaxNodes = 5000

// Catalog knows what the programs inside understand.
type Catalog interface {
	// CheckFeatureGates refuses gates that are unknown or cannot be set so.
	CheckFeatureGates(gates map[string]bool) error
	// Controllers lists the controllers of the controller manager.
	Controllers() []string
	// AdmissionPlugins lists the admission plugins of the API server.
	AdmissionPlugins() []string
}

// Validate refuses settings that no cluster can have, all of them at once.
func (s Settings) Validate(catalog Catalog) error {
	var problems []error
	if s.Nodes < 0 || s.Nodes > MaxNodes {
		problems = append(problems, fmt.Errorf("--nodes %d: give a number from 0 to %d", s.Nodes, MaxNodes))
	}
	if s.ControllerQPS < 1 {
		problems = append(problems, fmt.Errorf("--kcm-qps %d: give at least 1 query per second", s.ControllerQPS))
	}
	problems = append(problems, unknown("--stages", "set of stages", []string{s.Stages}, stages.Names))
	if err := catalog.CheckFeatureGates(s.FeatureGates); err != nil {
		problems = append(problems, fmt.Errorf("--feature-gates: %w", err))
	}
	problems = append(problems, unknown("--disable-admission", "admission plugin", s.DisableAdmission, catalog.AdmissionPlugins()))
	problems = append(problems, checkControllers(s.Controllers, catalog.Controllers()))
	return errors.Join(problems...)
}

func checkControllers(selection, known []string) error {
	if len(selection) == 0 {
		return errors.New(`--kcm-controllers: nothing selected: '*' selects all default controllers`)
	}
	var named []string
	for _, item := range selection {
		if item != "*" {
			named = append(named, strings.TrimPrefix(item, "-"))
		}
	}
	return unknown("--kcm-controllers", "controller", named, known)
}

func unknown(flag, kind string, names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s: unknown %s %q: known are %s", flag, kind, name, strings.Join(slices.Sorted(slices.Values(known)), ", "))
		}
	}
	return nil
}

// featureGates renders gates as the components' flag takes them.
func (s Settings) featureGates() string {
	pairs := make([]string, 0, len(s.FeatureGates))
	for _, gate := range slices.Sorted(maps.Keys(s.FeatureGates)) {
		pairs = append(pairs, fmt.Sprintf("%s=%t", gate, s.FeatureGates[gate]))
	}
	return strings.Join(pairs, ",")
}
