package operator

import (
	"flag"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"lockstep.dev/lockstep/internal/connect"
	"lockstep.dev/lockstep/internal/version"
)

// NewCommand returns "run".
func NewCommand() *cobra.Command {
	f := newFlags()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the operator in the foreground",
		Long: "Run the operator in the foreground: controllers, webhooks, or both.\n\n" +
			"A flag that is given overrides the configuration file, the file overrides the defaults.\n" +
			"/healthz and /readyz report its state. Ready means that the API server trusts the webhooks'\n" +
			"certificate and that the caches are synced.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.version {
				fmt.Fprintln(cmd.OutOrStdout(), version.Get())
				return nil
			}
			return f.run(cmd)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *flags) run(cmd *cobra.Command) error {
	log := zap.New(zap.UseFlagOptions(&f.zap))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	options, err := f.options(cmd.Flags())
	if err != nil {
		return err
	}
	if options.REST, err = connect.Config(f.kubeconfig); err != nil {
		return err
	}
	options.Log = log
	return Run(ctrl.SetupSignalHandler(), options)
}

// options returns the settings of the file, overridden by the flags that were given.
func (f *flags) options(given *pflag.FlagSet) (Options, error) {
	config, err := LoadConfig(f.config)
	if err != nil {
		return Options{}, err
	}
	if err := f.override(given, config); err != nil {
		return Options{}, err
	}
	if f.protectOnly {
		f.onlyProtect(config)
	}
	return Options{
		Config:      *config,
		ConfigFile:  f.config,
		Namespace:   f.namespace,
		Controllers: f.controllers,
		Webhooks:    f.webhooks,
		CertDir:     f.webhookCertDir,
		Pprof:       f.pprofAddress,
	}, nil
}

// logOptions are those of the development mode, with stack traces of panics only.
func logOptions() zap.Options {
	return zap.Options{Development: true, StacktraceLevel: zapcore.PanicLevel}
}

// webhooksWanted reads the switch of other implementations from the environment.
func webhooksWanted() bool { return os.Getenv("ENABLE_WEBHOOKS") != "false" }

func goFlags(bind func(*flag.FlagSet)) *flag.FlagSet {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	bind(fs)
	return fs
}
