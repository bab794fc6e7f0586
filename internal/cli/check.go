package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"

	"lockstep.dev/lockstep/internal/cli/check"
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
		c, live, err := o.Client(cmd.Context())
		if err != nil {
			return err
		}
		server, err := discovery.NewDiscoveryClientForConfig(c.Config)
		if err != nil {
			return err
		}
		found := table.Report(cmd.Context(), check.Options{
			Client: live, Discovery: server, TestNamespace: c.Namespace, Version: version.Get().Version, Now: time.Now(),
		})
		if err := out.print(found); err != nil || found.Failures == 0 {
			return err
		}
		return fmt.Errorf("%d of %d checks failed", found.Failures, len(found.Lines))
	}
	return cmd
}
