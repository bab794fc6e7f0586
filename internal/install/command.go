package install

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lockstep.dev/lockstep/internal/connect"
)

// NewCommand returns "install".
func NewCommand() *cobra.Command {
	var o Options
	var kubeconfig, config string
	protect := true
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put Lockstep into a cluster",
		Long: "Apply namespace, CustomResourceDefinitions, roles, webhook configurations and the policies that\n" +
			"protect claims in use, and wait until the API server serves the new kind. Run again, it changes\n" +
			"nothing; with another configuration, it leaves nothing of the one before.\n\n" +
			"Without --image no operator is deployed: run it yourself with \"lockstep run\", and say with\n" +
			"--webhook-url where the API server finds it. What another implementation installed under the\n" +
			"same names is taken over. One that still runs is not: install refuses, unless --image replaces it.\n\n" +
			"With --protect-only nothing is installed for LeaderWorkerSets, which may be another implementation's:\n" +
			"the operator has the namespace lockstep-system, and names of its own.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o.Out, o.NoProtection = cmd.OutOrStdout(), !protect
			if config != "" {
				if o.Config, err = os.ReadFile(config); err != nil {
					return fmt.Errorf("read the configuration: %w", err)
				}
			}
			if o.Print {
				return Install(cmd.Context(), o)
			}
			if o.REST, err = connect.Config(kubeconfig); err != nil {
				return err
			}
			return Install(cmd.Context(), o)
		},
	}
	register(cmd.Flags(), &o, &kubeconfig)
	cmd.Flags().StringVar(&o.WebhookURL, "webhook-url", "", "where the API server finds the webhooks, `https://HOST:PORT`; without, the Service lws-webhook-service")
	cmd.Flags().StringVar(&config, "config", "", "`file` with the Configuration that the operator runs with: it says what protects claims, and goes to the operator that --image deploys")
	cmd.Flags().BoolVar(&o.Print, "print", false, "write the manifests, as for an API server of today, and ask none")
	cmd.Flags().BoolVar(&o.ProtectOnly, "protect-only", false, "protect claims in use, and install nothing for LeaderWorkerSets")
	cmd.Flags().BoolVar(&protect, "protection", true, "protect claims in use; switched off, what an earlier install brought for it goes")
	cmd.Flags().StringVar(&o.Image, "image", "", "deploy the operator from this `image`, which holds the program at /lockstep")
	return cmd
}

// NewUninstallCommand returns "uninstall".
func NewUninstallCommand() *cobra.Command {
	var o Options
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take Lockstep out of a cluster",
		Long: "Delete everything \"lockstep install\" made and the operator made for itself, the namespace\n" +
			"included if install created it. Refuses, and removes nothing, while LeaderWorkerSets exist, or\n" +
			"while claims that are being deleted rely on Lockstep to let them go. Needs no operator that\n" +
			"runs. Cut short, it is taken up again by running it once more.\n\n" +
			"With --keep-sets the definitions stay, and so does every set with all that is its own, for\n" +
			"another implementation to go on with; and so does the namespace. With --keep-protection claims\n" +
			"stay protected until Lockstep is installed again; with --keep-choices the modes and holds that\n" +
			"people wrote on namespaces and claims stay.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o.Out = cmd.OutOrStdout()
			if o.REST, err = connect.Config(kubeconfig); err != nil {
				return err
			}
			return Uninstall(cmd.Context(), o)
		},
	}
	register(cmd.Flags(), &o, &kubeconfig)
	cmd.Flags().BoolVar(&o.KeepSets, "keep-sets", false, "leave the definitions, all sets and the namespace")
	cmd.Flags().BoolVar(&o.KeepProtection, "keep-protection", false, "leave what protects claims; one whose deletion is asked for waits until Lockstep is installed again")
	cmd.Flags().BoolVar(&o.KeepChoices, "keep-choices", false, "leave the modes and holds that people wrote on namespaces and claims")
	return cmd
}

func register(fs *pflag.FlagSet, o *Options, kubeconfig *string) {
	fs.StringVar(kubeconfig, "kubeconfig", "", "`file` with the cluster to use; without, $KUBECONFIG, then the cluster this runs in, then ~/.kube/config")
	fs.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and write nothing")
	fs.DurationVar(&o.Timeout, "timeout", time.Minute, "how long to wait for what must come or go")
}
