package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/version"
)

// options are the flags and streams of all commands.
type options struct {
	flags *genericclioptions.ConfigFlags
	genericiooptions.IOStreams
}

// NewCommand returns kubectl lockstep.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true), IOStreams: streams}
	o.flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.UserAgent = "kubectl-" + version.UserAgent()
		config.QPS = -1 // the API server limits its clients
		config.WarningHandler = rest.NoWarnings{}
		return config
	}
	root := &cobra.Command{
		Use:   "kubectl-lockstep",
		Short: "Show and roll out LeaderWorkerSets, and explain and release PersistentVolumeClaims",
		Long: `Show the state of LeaderWorkerSets, what each group waits for, and what the operator will do and
why. Follow, undo, restart, pause and resume rollouts. Explain why a PersistentVolumeClaim is in use
or is not deleted, and release it.

Only rollout undo, restart, pause and resume, and release, write to the cluster. With kubectl-lockstep
on the PATH, run it as kubectl lockstep.`,
		Example: `  kubectl lockstep status llama
  kubectl lockstep status llama --watch
  kubectl lockstep plan llama
  kubectl lockstep plan -f llama.yaml
  kubectl lockstep rollout status llama
  kubectl lockstep rollout undo llama
  kubectl lockstep why pvc/data-llama-0
  kubectl lockstep release pvc/data-llama-0`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl lockstep"},
		Version:       version.Get().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	o.flags.AddFlags(root.PersistentFlags())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(o.statusCommand(), o.planCommand(), o.rolloutCommand(), o.whyCommand(), o.releaseCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), version.Get()) },
	}
}
