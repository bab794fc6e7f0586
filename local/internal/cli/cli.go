// Package cli is the command line of lockstep-local. It knows flags, texts and
// exit codes; what the commands do is package plane's.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"lockstep.dev/lockstep/local/internal/plane"
)

// app carries what all commands share.
type app struct {
	out, err io.Writer
	dir      string
}

// Run carries out one command line and returns the exit code: 0, or 1 with an
// explanation on stderr. release is the version of Kubernetes in the binary, and programs are
// those in it.
func Run(ctx context.Context, release string, programs, args []string, out, err io.Writer) int {
	root := command(release, programs, out, err)
	root.SetArgs(args)
	if problem := root.ExecuteContext(ctx); problem != nil {
		fmt.Fprintf(err, "lockstep-local: %v\n", problem)
		return 1
	}
	return 0
}

func command(release string, programs []string, out, err io.Writer) *cobra.Command {
	a := &app{out: out, err: err}
	root := &cobra.Command{
		Use:   "lockstep-local",
		Short: "A Kubernetes control plane on this machine, with simulated nodes",
		Long: `lockstep-local runs a real Kubernetes control plane (etcd, API server, controller
manager, scheduler) as ordinary processes on ` + plane.Loopback + `, with nodes, pods and volumes
simulated by kwok. One binary holds it all; "lockstep-local kubectl" is in it too.`,
		Version:       release,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(out)
	root.SetErr(err)
	root.AddCommand(a.upCommand(), a.downCommand(), a.statusCommand(), a.killCommand(), a.restartCommand(), a.assetsCommand())
	for _, name := range programs {
		root.AddCommand(programCommand(name))
	}
	return root
}

// programCommand stands in the help only: such a call never comes here.
func programCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use: name + " [ARGUMENTS]", Short: "Be " + name + ", with its own command line", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("%s takes no flags before its name: call lockstep-local %s [ARGUMENTS]", name, name)
		},
	}
}

func (a *app) addDir(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.dir, "dir", "", "directory of the cluster (required)")
}

func (a *app) cluster() (*plane.Cluster, error) {
	layout, err := plane.NewLayout(a.dir)
	if err != nil {
		return nil, err
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &plane.Cluster{Layout: layout, Executable: executable, Progress: a.err}, nil
}

// componentArg reads the one argument of commands about a component.
func componentArg(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("give one component, as etcd or kwok")
	}
	_, err := plane.ParseComponent(args[0])
	return err
}
