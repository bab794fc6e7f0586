package cli

import (
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"lockstep.dev/lockstep/local/internal/plane"
)

// addRestartable adds the flags of settings that a restarted component can take on.
func addRestartable(flags *pflag.FlagSet, s *plane.Settings) {
	flags.BoolVar(&s.Audit, "audit", s.Audit, "write one line of metadata per request to DIR/audit.log")
	flags.IntVar(&s.ControllerQPS, "kcm-qps", s.ControllerQPS, "queries per second of the controller manager's client; burst is 1.5 times as much")
	flags.Var(cliflag.NewMapStringBool(&s.FeatureGates), "feature-gates", "feature gates for API server, controller manager and scheduler: A=true,B=false")
	flags.StringSliceVar(&s.DisableAdmission, "disable-admission", s.DisableAdmission, "admission plugins of the API server to switch off")
	flags.StringSliceVar(&s.Controllers, "kcm-controllers", s.Controllers, "controllers to run: '*' is all default ones, '-x' is all but x")
}

// over returns remembered settings with the flags that were given over them.
func over(remembered plane.Settings, given *pflag.FlagSet) (plane.Settings, error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	addRestartable(flags, &remembered)
	var problem error
	given.Visit(func(f *pflag.Flag) {
		to := flags.Lookup(f.Name)
		if to == nil {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			problem = to.Value.(pflag.SliceValue).Replace(list.GetSlice())
		} else {
			problem = to.Value.Set(f.Value.String())
		}
	})
	return remembered, problem
}
