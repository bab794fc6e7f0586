// Package cli is the command line of lockstep-local. It knows flags, texts and
// exit codes; what the commands do is package plane's.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

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

// onCluster makes cmd run on the cluster of its flag --dir.
func (a *app) onCluster(cmd *cobra.Command, run func(context.Context, *plane.Cluster, []string) error) *cobra.Command {
	cmd.Flags().StringVar(&a.dir, "dir", "", "directory of the cluster (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		layout, err := plane.NewLayout(a.dir)
		if err != nil {
			return err
		}
		executable, err := os.Executable()
		if err != nil {
			return err
		}
		return run(cmd.Context(), &plane.Cluster{Layout: layout, Executable: executable, Progress: a.err}, args)
	}
	return cmd
}

// componentArg reads the one argument of commands about a component.
func componentArg(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("give one component, as etcd or kwok")
	}
	_, err := plane.ParseComponent(args[0])
	return err
}

// assets are the names under which envtest looks for its programs.
var assets = []string{"etcd", "kube-apiserver", "kubectl"}

func (a *app) assetsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "assets DIR",
		Short: "Make DIR fit for KUBEBUILDER_ASSETS: etcd, kube-apiserver and kubectl as links to this binary",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			if err := linkAssets(args[0], binary); err != nil {
				return err
			}
			fmt.Fprintln(a.out, args[0])
			return nil
		},
	}
}

// linkAssets replaces links only: a file under such a name is a program of the user.
func linkAssets(dir, binary string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range assets {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return fmt.Errorf("%q is not a link: move it away, or give another directory", path)
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(binary, path); err != nil {
			return err
		}
	}
	return nil
}

// addRestartable adds the flags of settings that a restarted component can take on.
func addRestartable(flags *pflag.FlagSet, s *plane.Settings) {
	flags.BoolVar(&s.Audit, "audit", s.Audit, "write one line of metadata per request to DIR/audit.log")
	flags.IntVar(&s.ControllerQPS, "kcm-qps", s.ControllerQPS, "queries per second of the controller manager's client; burst is 1.5 times as much")
	flags.Var(cliflag.NewMapStringBool(&s.FeatureGates), "feature-gates", "feature gates for API server, controller manager and scheduler: A=true,B=false")
	flags.StringSliceVar(&s.RuntimeConfig, "runtime-config", s.RuntimeConfig, "APIs of the API server to switch on or off: GROUP/VERSION/RESOURCE=false,...")
	flags.StringSliceVar(&s.DisableAdmission, "disable-admission", s.DisableAdmission, "admission plugins of the API server to switch off")
	flags.StringVar(&s.Egress, "egress", s.Egress, "Unix socket of an HTTP CONNECT proxy through which the API server reaches Services and kubelets")
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
