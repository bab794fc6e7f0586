package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/version"
)

// options are what all commands have in common.
type options struct {
	flags *genericclioptions.ConfigFlags
	genericiooptions.IOStreams
}

// NewCommand returns kubectl lockstep.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true), IOStreams: streams}
	o.flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.UserAgent = "kubectl-" + version.UserAgent()
		return config
	}
	root := &cobra.Command{
		Use:   "kubectl-lockstep",
		Short: "See how LeaderWorkerSets stand and what the operator is about to do, steer rollouts, and explain claims",
		Long: `See how LeaderWorkerSets stand, what each group waits for, and what the operator is
about to do and why; follow rollouts, and undo, restart, pause and resume them. Say why a
volume claim is in use or does not go away, and release one that must be deleted all the same.
Only rollout undo, restart, pause and resume, and release, write to the cluster.

As kubectl-lockstep on the PATH it is a plugin: kubectl lockstep.`,
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
	if err := root.RegisterFlagCompletionFunc("namespace", o.completeNamespaces); err != nil {
		panic(err) // the flag was added above
	}
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

// oneName reads the one argument of commands about a set.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("give the name of one LeaderWorkerSet: %s NAME; list them with: kubectl get leaderworkersets", cmd.CommandPath())
}
