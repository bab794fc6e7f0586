// Package cli is kubectl lockstep: its commands, flags, connections and errors.
//
// Packages lws and pvc read and change the cluster, and package render shows what they find.
package cli

import (
	"cmp"
	"context"
	_ "embed" // the helps
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/operate"
	"lockstep.dev/lockstep/internal/help"
	"lockstep.dev/lockstep/internal/terminal"
	"lockstep.dev/lockstep/internal/version"
)

// options are the flags and streams of all commands.
type options struct {
	*cluster.Flags
	// IOStreams escape what they write. raw and its stdout do not.
	genericiooptions.IOStreams
	raw    genericiooptions.IOStreams
	stdout io.Writer
	// noColor is the flag --no-color.
	noColor bool
}

// showsColours reports whether texts have colours: on a terminal, unless the flag or https://no-color.org says not.
func (o *options) showsColours() bool {
	return !o.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal.Is(o.stdout)
}

// forPrograms is where formats for programs are printed. People read a terminal.
func (o *options) forPrograms() io.Writer {
	if terminal.Is(o.stdout) {
		return o.Out
	}
	return o.stdout
}

// texts are the helps of the commands, by their names.
//
//go:embed help.txt
var texts string

// describe returns a command with its help.
func describe(name string) *cobra.Command { return help.Command(texts, name) }

// NewCommand returns kubectl lockstep.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{Flags: &cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}, IOStreams: streams, raw: streams, stdout: streams.Out}
	o.Out, o.ErrOut = terminal.Writer(streams.Out), terminal.Writer(streams.ErrOut)
	o.Warn = o.ErrOut
	o.Flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.UserAgent = "kubectl-" + version.UserAgent()
		config.QPS = -1 // the API server limits its clients
		config.WarningHandler = rest.NoWarnings{}
		return config
	}
	root := describe("kubectl-lockstep")
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl lockstep"}
	root.Version, root.SilenceErrors, root.SilenceUsage = version.Get().String(), true, true
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.ErrOut)
	o.Flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().BoolVar(&o.noColor, "no-color", false, "show no colours on a terminal; so does the variable NO_COLOR")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
			wants := map[string]string{"int64": "a whole number", "duration": "a time such as 5m", "bool": "true or false"}
			flag := invalid.GetFlag()
			err = fmt.Errorf("--%s %s: give %s", flag.Name, invalid.GetValue(), cmp.Or(wants[flag.Value.Type()], flag.Value.Type()))
		}
		return fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(o.statusCommand(), o.planCommand(), o.rolloutCommand(), o.whyCommand(), o.releaseCommand(),
		o.podsCommand("logs", 1, 2, &operate.Logs{}), o.podsCommand("exec", 2, 3, &operate.Exec{}), o.eventsCommand(), o.nodeCommand(),
		o.requestCommand("restart", lws.RestartGroup), o.requestCommand("recover", lws.Recover), o.checkCommand(), o.reportCommand(), versionCommand())
	o.completeFlag(root, "namespace", func(ctx context.Context, c argument.Cluster, _ []string, _ string) []string {
		return argument.Namespaces.List(ctx, c, "")
	})
	return root
}

func versionCommand() *cobra.Command {
	cmd := describe("version")
	cmd.Args = cobra.NoArgs
	cmd.Run = func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), version.Get()) }
	return cmd
}

// completion returns a completion of the shell from the cluster of the flags.
func (o *options) completion(find argument.Suggest) cobra.CompletionFunc {
	return argument.Completion(func(ctx context.Context) (argument.Cluster, error) {
		*o.Flags.Timeout = argument.CompleteWithin.String() // discovery knows no context
		c, live, err := o.Client(ctx)
		if err != nil {
			return argument.Cluster{}, err
		}
		return argument.Cluster{Reader: live, Namespace: c.Namespace}, nil
	}, find)
}

// completeNames completes the arguments of a command: names of kinds, no more than most.
func (o *options) completeNames(cmd *cobra.Command, most int, kinds ...argument.Kind) {
	cmd.ValidArgsFunction = o.completion(argument.NamesOf(most, kinds...))
}

// completeFlag completes the values of a flag.
func (o *options) completeFlag(cmd *cobra.Command, flag string, find argument.Suggest) {
	if err := cmd.RegisterFlagCompletionFunc(flag, o.completion(find)); err != nil {
		panic(err) // the flag does not exist
	}
}
