package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"

	"lockstep.dev/lockstep/internal/cli/check"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/version"
)

func (o *options) checkCommand() *cobra.Command {
	var before bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether Lockstep is installed well, or with --pre whether it can be",
		Long: `Check definitions, webhooks and their certificate, policies, roles, leader, versions and features of
an installation, and find what another implementation left. Each line is ok, warning or failure. What you
may not read is a warning that names the missing right. It ends with 1 if there is a failure.

With --pre check whether an installation would go well: Kubernetes version, features, your rights, a
definition that is newer, and another implementation. Nothing is written: a set is created as a dry run.`,
		Example: `  kubectl lockstep check --pre
  kubectl lockstep check
  kubectl lockstep check -o json`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&before, "pre", false, "check whether Lockstep can be installed")
	out := o.addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		table := check.Installed
		if before {
			table = check.Before
		}
		return o.check(cmd.Context(), out, table)
	}
	return cmd
}

func (o *options) check(ctx context.Context, out *output, table check.Table) error {
	c, live, err := o.client(ctx)
	if err != nil {
		return err
	}
	server, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return err
	}
	found := render.Check(table.Run(ctx, check.Options{
		Client: live, Discovery: server, TestNamespace: c.namespace, Version: version.Get().Version, Now: time.Now(),
	}))
	if err := out.print(found); err != nil {
		return err
	}
	if found.Failures > 0 {
		return fmt.Errorf("%d of %d checks failed", found.Failures, len(found.Lines))
	}
	return nil
}
