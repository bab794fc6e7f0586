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

// amendment is a command that changes sets.
type amendment struct {
	sets    chosen
	print   *genericclioptions.PrintFlags
	dryRun  string
	owner   string
	history bool // whether what is decided depends on revisions
}

var dryRuns = []string{string(lws.DryRunNone), string(lws.DryRunClient), string(lws.DryRunServer)}

// amendCommand completes a command that changes sets by what decide returns.
func (o *options) amendCommand(cmd *cobra.Command, withHistory bool, decide func() lws.Decide) *cobra.Command {
	a := &amendment{history: withHistory, print: genericclioptions.NewPrintFlags("").WithTypeSetter(lws.Scheme())}
	cmd.Args = a.sets.args
	cmd.ValidArgsFunction = o.completeSeveral
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.amend(cmd.Context(), a, decide()) }
	a.sets.flag(cmd)
	a.print.AddFlags(cmd)
	cmd.Flags().StringVar(&a.dryRun, "dry-run", a.none(), "none, client (only say what would be done) or server (have the API server try it and keep nothing)")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(lws.DryRunClient)
	cmd.Flags().StringVar(&a.owner, "field-manager", lws.FieldOwner, "name of the manager of the fields that are changed")
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(dryRuns, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *amendment) none() string { return string(lws.DryRunNone) }

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
		if a.dryRun != a.none() {
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

// explainWrite says what to do about what an API server answered to a write.
func explainWrite(err error, host string, key types.NamespacedName) error {
	switch {
	case strings.Contains(err.Error(), "denied the request"): // admission says itself what is wrong
		return err
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		return fmt.Errorf("the webhook does not answer, so nothing was changed: %w; see whether the operator runs, with: kubectl -n lws-system get pods", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("not allowed: %w; ask for a role that may get and patch leaderworkersets, and for undo list controllerrevisions, in namespace %q", err, key.Namespace)
	case meta.IsNoMatchError(err), apierrors.IsUnauthorized(err):
		return explain(err, host, key.Namespace)
	case apierrors.IsConflict(err):
		return fmt.Errorf("leaderworkerset %q changes all the time; try again: %w", key.Name, err)
	}
	return err
}

func (o *options) rolloutUndoCommand() *cobra.Command {
	var revision int64
	cmd := &cobra.Command{
		Use:   "undo NAME...",
		Short: "Go back to an earlier revision",
		Long: `Give a set the template and network configuration of an earlier revision again, and the change
cause that it had: the one before the present one, or that of --to-revision. It is rolled out
as any change is. The number of groups and the pace of rollouts stay as they are.`,
		Example: `  kubectl lockstep rollout undo llama
  kubectl lockstep rollout undo llama --to-revision=3
  kubectl lockstep rollout undo llama --dry-run=server`,
		PreRunE: func(*cobra.Command, []string) error {
			if revision < 0 {
				return fmt.Errorf("--to-revision %d: it must not be negative", revision)
			}
			return nil
		},
	}
	cmd.Flags().Int64Var(&revision, "to-revision", lws.Previous, "the revision to go back to; zero means the one before the present one")
	return o.amendCommand(cmd, true, func() lws.Decide { return lws.Undo(revision) })
}

func (o *options) rolloutRestartCommand() *cobra.Command {
	return o.amendCommand(&cobra.Command{
		Use:   "restart NAME...",
		Short: "Replace every group, at the pace of a rollout",
		Long: `Replace every group by one of the same template, leaders and workers, at the pace of a rollout.
It notes the moment in an annotation of the templates, as kubectl rollout restart does.`,
		Example: `  kubectl lockstep rollout restart llama
  kubectl lockstep rollout restart -l team=inference`,
	}, false, func() lws.Decide { return lws.Restart(time.Now()) })
}

func (o *options) rolloutPauseCommand() *cobra.Command {
	return o.amendCommand(&cobra.Command{
		Use:   "pause NAME...",
		Short: "Hold a rollout where it stands",
		Long: `Hold a rollout where it stands: no further group is replaced, and a change of the template
waits. Groups that were given up already come back at the revision that is rolled out. Groups
that fail come back at their own revision, and the set may be scaled.`,
		Example: `  kubectl lockstep rollout pause llama`,
	}, false, func() lws.Decide { return lws.Pause })
}

func (o *options) rolloutResumeCommand() *cobra.Command {
	return o.amendCommand(&cobra.Command{
		Use:     "resume NAME...",
		Short:   "Let a paused rollout go on",
		Long:    `Let a paused rollout go on from where it stood, and take in what was changed meanwhile.`,
		Example: `  kubectl lockstep rollout resume llama`,
	}, false, func() lws.Decide { return lws.Resume })
}
