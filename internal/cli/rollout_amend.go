package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"lockstep.dev/lockstep/internal/cli/lws"
)

// amendment holds the flags of a command that changes sets.
type amendment struct {
	sets    chosen
	print   *genericclioptions.PrintFlags
	dryRun  string
	owner   string
	history bool // the decision needs revisions
}

var dryRuns = []string{string(lws.DryRunNone), string(lws.DryRunClient), string(lws.DryRunServer)}

// amendCommand completes a command whose change is the result of decide.
func (o *options) amendCommand(cmd *cobra.Command, withHistory bool, decide func() lws.Decide) *cobra.Command {
	a := &amendment{history: withHistory, print: genericclioptions.NewPrintFlags("").WithTypeSetter(lws.Scheme())}
	cmd.Args = a.sets.args
	cmd.ValidArgsFunction = o.completeSeveral
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.amend(cmd.Context(), a, decide()) }
	a.sets.flag(cmd)
	a.print.AddFlags(cmd)
	cmd.Flags().StringVar(&a.dryRun, "dry-run", string(lws.DryRunNone), "none, client (print the change) or server (the API server tries it and stores nothing)")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(lws.DryRunClient)
	cmd.Flags().StringVar(&a.owner, "field-manager", lws.FieldOwner, "field manager of the change")
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(dryRuns, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *options) amend(ctx context.Context, a *amendment, decide lws.Decide) error {
	if !slices.Contains(dryRuns, a.dryRun) {
		return fmt.Errorf("--dry-run %q: give one of %s", a.dryRun, strings.Join(dryRuns, ", "))
	}
	if _, err := a.print.ToPrinter(); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	config, err := o.config()
	if err != nil {
		return err
	}
	if err := reach(ctx, config); err != nil {
		return err
	}
	editor, err := lws.NewEditor(config)
	if err != nil {
		return explain(err, config.Host, namespace)
	}
	editor.Owner, editor.DryRun, editor.WithHistory = a.owner, lws.DryRun(a.dryRun), a.history
	keys, err := a.sets.find(ctx, editor, namespace)
	if err != nil {
		return explain(err, config.Host, namespace)
	}
	return each(keys, func(key types.NamespacedName) error {
		change, after, err := editor.Amend(ctx, key, decide)
		switch {
		case apierrors.IsNotFound(err):
			return noSuch("leaderworkerset", key)
		case err != nil:
			return explainWrite(err, config.Host, key)
		}
		a.print.NamePrintFlags.Operation = change.Verb
		if a.dryRun != string(lws.DryRunNone) {
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

// explainWrite adds what to do about an error of a write.
func explainWrite(err error, host string, key types.NamespacedName) error {
	switch {
	case strings.Contains(err.Error(), "denied the request"): // the message of admission is enough
		return err
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		return fmt.Errorf("the webhook does not answer, so nothing was changed: %w; check that the operator runs: kubectl -n lws-system get pods", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("not allowed: %w; ask for a role that may get and patch leaderworkersets, and for undo list controllerrevisions, in namespace %q", err, key.Namespace)
	case meta.IsNoMatchError(err), apierrors.IsUnauthorized(err):
		return explain(err, host, key.Namespace)
	case apierrors.IsConflict(err):
		return fmt.Errorf("leaderworkerset %q has too many conflicts; try again: %w", key.Name, err)
	}
	return err
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
	return o.amendCommand(cmd, true, func() lws.Decide { return lws.Undo(revision) })
}

func (o *options) rolloutRestartCommand() *cobra.Command {
	return o.amendCommand(&cobra.Command{
		Use:   "restart NAME...",
		Short: "Replace every group by one of the same template, at the pace of a rollout",
		Long: `Replace every group, leaders and workers, at the pace of a rollout. It writes the time into an
annotation of the templates, as kubectl rollout restart does.`,
		Example: `  kubectl lockstep rollout restart llama
  kubectl lockstep rollout restart -l team=inference`,
	}, false, func() lws.Decide { return lws.Restart(time.Now()) })
}

func (o *options) rolloutPauseCommand() *cobra.Command {
	return o.amendCommand(&cobra.Command{
		Use:   "pause NAME...",
		Short: "Pause a rollout",
		Long: `Pause a rollout: the operator replaces no further group, and a change of the template waits. Groups
that were already given up come back at the new revision, groups that fail at their own.`,
		Example: `  kubectl lockstep rollout pause llama`,
	}, false, func() lws.Decide { return lws.Pause })
}

func (o *options) rolloutResumeCommand() *cobra.Command {
	return o.amendCommand(&cobra.Command{
		Use:     "resume NAME...",
		Short:   "Continue a paused rollout, with the changes made meanwhile",
		Example: `  kubectl lockstep rollout resume llama`,
	}, false, func() lws.Decide { return lws.Resume })
}
