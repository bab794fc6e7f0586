// Package cli is the command line of lockstep-local. It knows flags, texts and
// exit codes; what the commands do is package plane's.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

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

// Run carries out one command line and returns the exit code: 0, or 1 with an explanation on stderr. release is the
// version of Kubernetes in the binary, and programs are those in it.
func Run(ctx context.Context, release string, programs, args []string, out, err io.Writer) int {
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
	root.SetArgs(args)
	if problem := root.ExecuteContext(ctx); problem != nil {
		fmt.Fprintf(err, "lockstep-local: %v\n", problem)
		return 1
	}
	return 0
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

// onCluster makes cmd run on the cluster of its flag --dir, for no longer than its flag --timeout if it has one.
func (a *app) onCluster(cmd *cobra.Command, timeout *time.Duration, run func(context.Context, *plane.Cluster, []string) error) *cobra.Command {
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
		ctx := cmd.Context()
		if timeout != nil {
			if *timeout <= 0 {
				return fmt.Errorf("--timeout %s: give a time above zero, for example 3m", timeout)
			}
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, *timeout)
			defer cancel()
		}
		return run(ctx, &plane.Cluster{Layout: layout, Executable: executable, Progress: a.err}, args)
	}
	return cmd
}

// componentArg reads the one argument of commands about a component.
func componentArg(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("give one component, as etcd or kwok")
	}
	return plane.Component(args[0]).Validate()
}

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

// linkAssets links the names under which envtest looks for its programs. It replaces links only: a file under such a name
// is a program of the user.
func linkAssets(dir, binary string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return fmt.Errorf("%q is not a link: move it away, or give another directory", path)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
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

func (a *app) upCommand() *cobra.Command {
	settings := plane.DefaultSettings()
	var timeout time.Duration
	var from string
	cmd := &cobra.Command{
		Use:   "up --dir DIR",
		Short: "Bring a fresh cluster up, and print the path of its kubeconfig",
		Long: `Bring a fresh cluster up. It returns when the API server, the controllers, the
scheduler and all nodes are ready, and prints the path of the kubeconfig on standard
output; progress goes to standard error. The cluster runs on until down. What an
earlier cluster left in DIR is removed; other files in it are not touched.

With --from, etcd and the API server alone come up, with the objects of an archive of
kubectl lockstep report. Under the kubeconfig that is printed, the clock of kubectl
lockstep stands at the moment of the report.`,
		Example: `  lockstep-local up --dir .demo
  lockstep-local up --dir .replay --from lockstep-report.tar.gz
  kubectl lockstep plan llama --kubeconfig .replay/kubeconfig`,
		Args: cobra.NoArgs,
	}
	addRestartable(cmd.Flags(), &settings)
	cmd.Flags().IntVar(&settings.Nodes, "nodes", settings.Nodes, "number of simulated nodes")
	cmd.Flags().BoolVar(&settings.Kubelet, "kubelet", false, "let kwok stand in for kubelets: kubectl logs shows one text, and kubectl exec runs commands on this machine, "+
		"as you; whoever reaches "+plane.Loopback+" may do so, without a password")
	cmd.Flags().StringVar(&settings.Stages, "stages", settings.Stages, "pod stages of kwok: guarded deletes a pod by UID, as a kubelet does; stock is what kwok ships, and deletes by name")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Minute, "how long everything may take to become ready")
	cmd.Flags().StringVar(&from, "from", "", "archive of kubectl lockstep report to replay")
	cmd.MarkFlagsMutuallyExclusive("from", "nodes")
	return a.onCluster(cmd, &timeout, func(ctx context.Context, cluster *plane.Cluster, _ []string) error {
		if err := settings.Validate(); err != nil {
			return err
		}
		bringUp := cluster.Up
		if from != "" {
			recording, err := plane.ReadRecording(ctx, from)
			if err != nil {
				return err
			}
			bringUp = func(ctx context.Context, settings plane.Settings) error {
				return cluster.Replay(ctx, settings, recording)
			}
		}
		if err := bringUp(ctx, settings); err != nil {
			return err
		}
		fmt.Fprintln(a.out, cluster.Kubeconfig())
		return nil
	})
}

func (a *app) downCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down --dir DIR",
		Short: "End the cluster; its data goes, its logs stay until the next up",
		Args:  cobra.NoArgs,
	}
	return a.onCluster(cmd, nil, func(ctx context.Context, cluster *plane.Cluster, _ []string) error {
		was, err := cluster.Down(ctx)
		switch {
		case err != nil:
			return err
		case was:
			fmt.Fprintf(a.err, "cluster in %s ended\n", cluster.Dir)
		default:
			fmt.Fprintf(a.err, "no cluster in %s: nothing to end\n", cluster.Dir)
		}
		return nil
	})
}

func (a *app) killCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kill COMPONENT --dir DIR",
		Short: "End one component without warning (SIGKILL); it stays dead until restart",
		Args:  componentArg,
	}
	return a.onCluster(cmd, nil, func(ctx context.Context, cluster *plane.Cluster, args []string) error {
		component := plane.Component(args[0])
		if err := cluster.Kill(ctx, component); err != nil {
			return err
		}
		fmt.Fprintf(a.err, "%s killed\n", component)
		return nil
	})
}

func (a *app) restartCommand() *cobra.Command {
	settings := plane.DefaultSettings()
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "restart COMPONENT --dir DIR",
		Short: "Start one component again, with other settings if given, and wait until it is ready",
		Long: `Start one component again: end it in good order first, if it runs. Settings given here
replace those that the cluster was brought up with, and are remembered; each takes
effect in the components that read it when they are restarted.`,
		Example: `  lockstep-local restart kube-controller-manager --kcm-controllers '*,-garbage-collector-controller' --dir DIR
  lockstep-local restart kube-controller-manager --kcm-controllers '*' --dir DIR`,
		Args: componentArg,
	}
	addRestartable(cmd.Flags(), &settings)
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long the component may take to become ready")
	return a.onCluster(cmd, &timeout, func(ctx context.Context, cluster *plane.Cluster, args []string) error {
		return cluster.Restart(ctx, plane.Component(args[0]), func(remembered plane.Settings) (plane.Settings, error) {
			settings, err := over(remembered, cmd.Flags())
			return settings, errors.Join(err, settings.Validate())
		})
	})
}

func (a *app) statusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status --dir DIR",
		Short: "Show the components; exits 1 unless all of them are ready",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for programs; a table otherwise")
	return a.onCluster(cmd, nil, func(ctx context.Context, cluster *plane.Cluster, _ []string) error {
		write, known := map[string]func(io.Writer, plane.Status) error{"": writeTable, "json": writeJSON}[output]
		if !known {
			return fmt.Errorf("--output %q: give json, or nothing for a table", output)
		}
		status, err := cluster.Status(ctx)
		if err != nil {
			return err
		}
		if err := write(a.out, status); err != nil {
			return err
		}
		if !status.Ready() {
			return errors.New("not every component is ready") // the output has said why
		}
		return nil
	})
}

func writeJSON(out io.Writer, status plane.Status) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(status)
}

func writeTable(out io.Writer, status plane.Status) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tADDRESS\tDETAIL")
	for _, c := range status.Components {
		pid := "-"
		if c.PID != 0 {
			pid = strconv.Itoa(c.PID)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.State, pid, c.Address, c.Detail)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	nodes := "unknown: the API server does not answer"
	if status.Nodes != nil {
		nodes = fmt.Sprintf("%d of %d ready", status.Nodes.Ready, status.Nodes.Total)
	}
	_, err := fmt.Fprintf(out, "\nnodes: %s\nkubeconfig: %s\n", nodes, status.Kubeconfig)
	return err
}
