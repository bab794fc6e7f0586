package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"lockstep.dev/lockstep/local/internal/plane"
)

// The flags that carry settings, as users know them.
const (
	flagNodes            = "nodes"
	flagStages           = "stages"
	flagAudit            = "audit"
	flagControllerQPS    = "kcm-qps"
	flagFeatureGates     = "feature-gates"
	flagDisableAdmission = "disable-admission"
	flagControllers      = "kcm-controllers"
)

// settingsFlags are settings as they stand on a command line.
type settingsFlags struct {
	plane.Settings
	gates []string
}

func newSettingsFlags() *settingsFlags {
	return &settingsFlags{Settings: plane.DefaultSettings()}
}

// addRestartable adds the settings that a restarted component can take on.
func (s *settingsFlags) addRestartable(flags *pflag.FlagSet) {
	flags.BoolVar(&s.Audit, flagAudit, s.Audit, "write one line of metadata per request to DIR/audit.log")
	flags.IntVar(&s.ControllerQPS, flagControllerQPS, s.ControllerQPS, "queries per second of the controller manager's client; burst is 1.5 times as much")
	flags.StringSliceVar(&s.gates, flagFeatureGates, nil, "feature gates for API server, controller manager and scheduler: A=true,B=false")
	flags.StringSliceVar(&s.DisableAdmission, flagDisableAdmission, nil, "admission plugins of the API server to switch off")
	flags.StringSliceVar(&s.Controllers, flagControllers, s.Controllers, "controllers to run: '*' is all default ones, '-x' is all but x")
}

// changedOver lays the flags that were given over the settings remembered.
func (s *settingsFlags) changedOver(base plane.Settings, flags *pflag.FlagSet) (plane.Settings, error) {
	gates, err := parseGates(s.gates)
	if err != nil {
		return plane.Settings{}, err
	}
	take := map[string]func(){
		flagNodes:            func() { base.Nodes = s.Nodes },
		flagStages:           func() { base.Stages = s.Stages },
		flagAudit:            func() { base.Audit = s.Audit },
		flagControllerQPS:    func() { base.ControllerQPS = s.ControllerQPS },
		flagFeatureGates:     func() { base.FeatureGates = gates },
		flagDisableAdmission: func() { base.DisableAdmission = s.DisableAdmission },
		flagControllers:      func() { base.Controllers = s.Controllers },
	}
	for name, set := range take {
		if flags.Changed(name) {
			set()
		}
	}
	return base, nil
}

func parseGates(pairs []string) (map[string]bool, error) {
	var gates map[string]bool
	for _, pair := range pairs {
		name, text, found := strings.Cut(pair, "=")
		value, err := strconv.ParseBool(text)
		if !found || err != nil {
			return nil, fmt.Errorf("--%s %q: give each gate as NAME=true or NAME=false", flagFeatureGates, pair)
		}
		if gates == nil {
			gates = map[string]bool{}
		}
		gates[name] = value
	}
	return gates, nil
}
