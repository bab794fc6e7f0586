package install

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"lockstep.dev/lockstep/internal/connect"
)

// NewCommand returns "install".
func NewCommand() *cobra.Command {
	o, protect, config := &Options{}, true, ""
	cmd := newCommand("install", "Put Lockstep into a cluster",
		"Apply namespace, CustomResourceDefinitions, roles, webhook configurations and the policies that\n"+
			"protect PVCs in use, and wait until the API server serves the new kind. Run again, it changes\n"+
			"nothing. With another configuration, it leaves nothing of the earlier one.\n\n"+
			"Without --image no operator is deployed: run it yourself with \"lockstep run\", and set\n"+
			"--webhook-url to its address. Objects of another implementation under the same names are\n"+
			"replaced. Install refuses while that one runs, unless --image replaces it, and if its\n"+
			"definition has fields that this version lacks.\n\n"+
			"With --protect-only nothing is installed for LeaderWorkerSets, which may be another implementation's:\n"+
			"the operator has the namespace lockstep-system, and names of its own.",
		o, func(ctx context.Context) (err error) {
			o.NoProtection = !protect
			if config != "" {
				if o.Config, err = os.ReadFile(config); err != nil {
					return fmt.Errorf("read the configuration: %w", err)
				}
			}
			return Install(ctx, *o)
		})
	fs := cmd.Flags()
	fs.StringVar(&o.WebhookURL, "webhook-url", "", "where the API server finds the webhooks, `https://HOST:PORT`; without, the Service lws-webhook-service")
	fs.StringVar(&config, "config", "", "`file` with the Configuration that the operator runs with: it sets the protection of PVCs, and goes to the operator that --image deploys")
	fs.BoolVar(&o.Print, "print", false, "write the manifests for a current API server, and send no request")
	fs.BoolVar(&o.ProtectOnly, "protect-only", false, "protect PVCs in use, and install nothing for LeaderWorkerSets")
	fs.BoolVar(&protect, "protection", true, "protect PVCs in use; if false, remove what an earlier install added for it")
	fs.StringVar(&o.Image, "image", "", "deploy the operator from this `image`, which holds the program at /lockstep")
	return cmd
}

// NewUninstallCommand returns "uninstall".
func NewUninstallCommand() *cobra.Command {
	o := &Options{}
	cmd := newCommand("uninstall", "Take Lockstep out of a cluster",
		"Delete everything that \"lockstep install\" created and that the operator created for itself,\n"+
			"with the namespace if install created it. Uninstall refuses, and removes nothing, while\n"+
			"LeaderWorkerSets exist, or while PVCs need Lockstep. It needs no running operator. If it is\n"+
			"interrupted, run it again.\n\n"+
			"With --keep-sets the definitions, all sets with their objects and the namespace stay, for\n"+
			"another implementation. With --keep-protection PVCs stay protected until Lockstep is installed\n"+
			"again.",
		o, func(ctx context.Context) error { return Uninstall(ctx, *o) })
	fs := cmd.Flags()
	fs.BoolVar(&o.KeepSets, "keep-sets", false, "leave the definitions, all sets and the namespace")
	fs.BoolVar(&o.KeepProtection, "keep-protection", false, "leave PVCs protected; a PVC that is deleted stays until Lockstep is installed again")
	return cmd
}

// newCommand returns a command with the flags that both have.
func newCommand(use, short, long string, o *Options, do func(context.Context) error) *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) (err error) {
		if o.Out = cmd.OutOrStdout(); !o.Print {
			if o.REST, err = connect.Config(kubeconfig); err != nil {
				return err
			}
		}
		return do(cmd.Context())
	}}
	fs := cmd.Flags()
	fs.StringVar(&kubeconfig, "kubeconfig", "", "`file` with the cluster to use; without, $KUBECONFIG, then the cluster this runs in, then ~/.kube/config")
	fs.BoolVar(&o.DryRun, "dry-run", false, "report what would be done, and write nothing")
	fs.DurationVar(&o.Timeout, "timeout", time.Minute, "how long to wait for objects that must appear or disappear")
	return cmd
}
