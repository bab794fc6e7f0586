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
	cmd := describe("check")
	cmd.Args = cobra.NoArgs
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
	c, live, err := o.Client(ctx)
	if err != nil {
		return err
	}
	server, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return err
	}
	found := render.Check(table.Run(ctx, check.Options{
		Client: live, Discovery: server, TestNamespace: c.Namespace, Version: version.Get().Version, Now: time.Now(),
	}))
	if err := out.print(found); err != nil {
		return err
	}
	if found.Failures > 0 {
		return fmt.Errorf("%d of %d checks failed", found.Failures, len(found.Lines))
	}
	return nil
}
