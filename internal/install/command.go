package install

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lockstep.dev/lockstep/internal/connect"
)

// NewCommand returns "install".
func NewCommand() *cobra.Command {
	var o Options
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put Lockstep into a cluster",
		Long: "Apply namespace, CustomResourceDefinitions, roles and webhook configurations, and wait until\n" +
			"the API server serves the new kind. Run again, it changes nothing.\n\n" +
			"Without --image no operator is deployed: run it yourself with \"lockstep run\", and say with\n" +
			"--webhook-url where the API server finds it. What another implementation installed under the\n" +
			"same names is taken over. One that still runs is not: install refuses, unless --image replaces it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o.Out = cmd.OutOrStdout()
			if o.REST, err = connect.Config(kubeconfig); err != nil {
				return err
			}
			return Install(cmd.Context(), o)
		},
	}
	register(cmd.Flags(), &o, &kubeconfig)
	cmd.Flags().StringVar(&o.WebhookURL, "webhook-url", "", "where the API server finds the webhooks, `https://HOST:PORT`; without, the Service lws-webhook-service")
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
			"included if install created it. Refuses, and removes nothing, while LeaderWorkerSets exist.\n\n" +
			"With --keep-sets the definitions stay, and so does every set with all that is its own, for\n" +
			"another implementation to go on with; and so does the namespace.",
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
	return cmd
}

func register(fs *pflag.FlagSet, o *Options, kubeconfig *string) {
	fs.StringVar(kubeconfig, "kubeconfig", "", "`file` with the cluster to use; without, $KUBECONFIG, then the cluster this runs in, then ~/.kube/config")
	fs.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and write nothing")
	fs.DurationVar(&o.Timeout, "timeout", time.Minute, "how long to wait for what must come or go")
}
