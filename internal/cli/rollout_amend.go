package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"lockstep.dev/lockstep/internal/cli/lws"
)

// amendment holds the flags of a command that changes sets.
type amendment struct {
	print  *genericclioptions.PrintFlags
	dryRun string
}

// amendCommand completes a command whose change is the result of decide.
func (o *options) amendCommand(cmd *cobra.Command, decide func() lws.Decide) *cobra.Command {
	a := &amendment{print: genericclioptions.NewPrintFlags("").WithTypeSetter(lws.Scheme())}
	a.print.AddFlags(cmd)
	cmd.Flags().StringVar(&a.dryRun, "dry-run", lws.DryRunNone, "none, client (print the change) or server (the API server tries it and stores nothing)")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = lws.DryRunClient
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := setNames(cmd, args, many)
		if err != nil {
			return err
		}
		return o.amend(cmd.Context(), names, a, decide())
	}
	return cmd
}

func (o *options) amend(ctx context.Context, names []string, a *amendment, decide lws.Decide) error {
	if _, err := a.print.ToPrinter(); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if dryRuns := []string{lws.DryRunNone, lws.DryRunClient, lws.DryRunServer}; !slices.Contains(dryRuns, a.dryRun) {
		return fmt.Errorf("--dry-run %q: give one of %s", a.dryRun, strings.Join(dryRuns, ", "))
	}
	c, err := o.reach(ctx)
	if err != nil {
		return err
	}
	live, err := c.client()
	if err != nil {
		return c.explain(err, writeSets)
	}
	editor := &lws.Editor{Client: live, DryRun: a.dryRun}
	return c.each(names, func(key types.NamespacedName) error {
		change, after, err := editor.Amend(ctx, key, decide)
		switch {
		case apierrors.IsNotFound(err):
			return noSuch("leaderworkerset", key)
		case err != nil:
			return c.explain(err, writeSets)
		}
		a.print.NamePrintFlags.Operation = change.Verb
		if a.dryRun != lws.DryRunNone {
			if err := a.print.Complete("%s (" + a.dryRun + " dry run)"); err != nil {
				return err
			}
		}
		printer, err := a.print.ToPrinter()
		if err != nil {
			return err
		}
		return printer.PrintObj(after, o.Out)
	})
}

func (o *options) rolloutUndoCommand() *cobra.Command {
	var revision int64
	cmd := &cobra.Command{
		Use:   "undo NAME...",
		Short: "Restore an earlier revision",
		Long: `Restore the template, network configuration and change cause of an earlier revision: the previous
one, or that of --to-revision. It is rolled out like any change. Replicas and strategy stay.`,
		Example: `  kubectl lockstep rollout undo llama
  kubectl lockstep rollout undo llama --to-revision=3 --dry-run=server`,
		PreRunE: func(*cobra.Command, []string) error { return notNegative("--to-revision", revision) },
	}
	cmd.Flags().Int64Var(&revision, "to-revision", lws.Previous, "the revision to restore; zero means the previous one")
	return o.amendCommand(cmd, func() lws.Decide { return lws.Undo(revision) })
}

func (o *options) rolloutRestartCommand() *cobra.Command {
	return o.amendCommand(&cobra.Command{
		Use:   "restart NAME...",
		Short: "Replace every group by one of the same template, at the pace of a rollout",
		Long: `Replace every group, leaders and workers, at the pace of a rollout. It writes the time into an
annotation of the templates, as kubectl rollout restart does.`,
		Example: `  kubectl lockstep rollout restart llama
  kubectl get leaderworkersets -l team=inference -o name | xargs kubectl lockstep rollout restart`,
	}, func() lws.Decide { return lws.Restart(time.Now()) })
}

func (o *options) rolloutPauseCommand() *cobra.Command {
	return o.amendCommand(&cobra.Command{
		Use:   "pause NAME...",
		Short: "Pause a rollout",
		Long: `Pause a rollout: the operator replaces no further group, and a change of the template waits. Groups
that were already given up come back at the new revision, groups that fail at their own.`,
		Example: `  kubectl lockstep rollout pause llama`,
	}, func() lws.Decide { return lws.Pause })
}

func (o *options) rolloutResumeCommand() *cobra.Command {
	return o.amendCommand(&cobra.Command{
		Use:     "resume NAME...",
		Short:   "Continue a paused rollout, with the changes made meanwhile",
		Example: `  kubectl lockstep rollout resume llama`,
	}, func() lws.Decide { return lws.Resume })
}
