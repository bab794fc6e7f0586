// Command lockstep installs, removes and runs the Lockstep operator.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // every way a kubeconfig may name to log in

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/terminal"
	"lockstep.dev/lockstep/internal/version"
)

func main() {
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(terminal.Writer(os.Stderr), "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "lockstep",
		Short:         "LeaderWorkerSets that survive being deleted and created again",
		Version:       version.Get().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(operator.NewCommand(), install.NewCommand(), install.NewUninstallCommand(), &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), version.Get()) },
	})
	return root
}
