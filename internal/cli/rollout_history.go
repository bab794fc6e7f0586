package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
)

// errDiffers ends the command with 1 and prints nothing.
var errDiffers = errors.New("")

// trouble is an error of a command that ends with 1 for a difference.
type trouble struct{ error }

// mistake is an error of arguments: --exit-code may not have been read yet.
func mistake(err error) error {
	if err == nil {
		return nil
	}
	return trouble{err}
}

// ExitCode returns the exit code for the error of a command.
func ExitCode(err error) int {
	var t trouble
	switch {
	case err == nil:
		return 0
	case errors.As(err, &t):
		return 2
	}
	return 1
}

func (o *options) rolloutHistoryCommand() *cobra.Command {
	var sets chosen
	var revision int64
	var out *output
	cmd := &cobra.Command{
		Use:   "history NAME...",
		Short: "List the revisions of a set, and how many groups run each",
		Long: `List the revisions of a set by rising number: how many groups run each, when it was first rolled
out, and its change cause (kubernetes.io/change-cause). The annotation
lockstep.dev/revision-history-limit on the set is the number of unused revisions to keep, 5 when absent.`,
		Example: `  kubectl lockstep rollout history llama
  kubectl lockstep rollout history llama --revision=3
  kubectl lockstep rollout history llama --revision=3 -o yaml`,
		Args:              sets.args,
		ValidArgsFunction: o.completeSeveral,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.begin(); err != nil {
				return err
			}
			if err := notNegative("--revision", revision); err != nil {
				return err
			}
			return o.rolloutHistory(cmd.Context(), sets, revision, out)
		},
	}
	out = newOutput(cmd)
	sets.flag(cmd)
	cmd.Flags().Int64Var(&revision, "revision", 0, "show this revision with its template")
	return cmd
}

func (o *options) rolloutHistory(ctx context.Context, sets chosen, revision int64, out *output) error {
	session, keys, err := o.openSets(ctx, sets)
	if err != nil {
		return err
	}
	between := ""
	return each(keys, func(key types.NamespacedName) error {
		now := time.Now()
		found, revisions, err := history(ctx, session, key, now)
		if err != nil {
			return err
		}
		var shown reporter = render.History(found, revisions)
		if revision != 0 {
			if shown, err = render.RevisionOf(found, revisions, revision); err != nil {
				return err
			}
		}
		text, _, err := out.print(shown, now)
		if err == nil {
			_, err = fmt.Fprint(o.Out, between+text)
		}
		between = out.between()
		return err
	})
}

// history reads a set and all its revisions.
func history(ctx context.Context, session *lws.Session, key types.NamespacedName, now time.Time) (lws.Survey, []*appsv1.ControllerRevision, error) {
	found, err := session.Set(ctx, key, now)
	if apierrors.IsNotFound(err) {
		return found, nil, noSuch("leaderworkerset", key)
	}
	if err != nil {
		return found, nil, explain(err, "", key.Namespace)
	}
	revisions, err := lws.Revisions(ctx, session.Live, found.Set.Set)
	return found, revisions, explain(err, "", key.Namespace)
}

func (o *options) rolloutDiffCommand() *cobra.Command {
	var of render.Comparison
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "diff NAME",
		Short: "Show what differs between two revisions, or a revision and the spec",
		Long: `Show what differs between two revisions, or between a revision and the set's spec, as diff -u
does. Without --revision, show what the spec says and no revision does, as while the rollout
is paused; or, if there is nothing of that kind, what was changed last.`,
		Example: `  kubectl lockstep rollout diff llama
  kubectl lockstep rollout diff llama --revision=3
  kubectl lockstep rollout diff llama --revision=3 --to-revision=4`,
		Args: func(cmd *cobra.Command, args []string) error {
			err := onlyOneSet(cmd, args)
			if err == nil && of.To != render.Live && of.From == render.Live {
				err = errors.New("--to-revision needs --revision, the one to compare with")
			}
			return mistake(err)
		},
		ValidArgsFunction: o.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := oneSet(cmd, args)
			if err != nil {
				return err
			}
			err = o.rolloutDiff(cmd.Context(), name, of, exitCode)
			if exitCode && err != nil && !errors.Is(err, errDiffers) {
				return trouble{err}
			}
			return err
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return mistake(cmd.Parent().FlagErrorFunc()(cmd, err)) })
	cmd.Flags().Int64Var(&of.From, "revision", render.Live, "compare this revision")
	cmd.Flags().Int64Var(&of.To, "to-revision", render.Live, "compare with this revision, in place of the spec")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "end with 1 if anything differs, and with 2 on errors")
	return cmd
}

func (o *options) rolloutDiff(ctx context.Context, name string, of render.Comparison, exitCode bool) error {
	session, keys, err := o.openSets(ctx, chosen{names: []string{name}})
	if err != nil {
		return err
	}
	found, revisions, err := history(ctx, session, keys[0], time.Now())
	if err != nil {
		return err
	}
	if of == (render.Comparison{}) {
		if of, err = render.UsualComparison(found.Set.Set, revisions); err != nil {
			return err
		}
	}
	text, err := render.Compare(found.Set.Set, revisions, of)
	if err != nil {
		return err
	}
	if text == "" {
		fmt.Fprintln(o.ErrOut, render.Same(found.Set.Set, of))
		return nil
	}
	if _, err := fmt.Fprint(o.Out, text); err != nil || !exitCode {
		return err
	}
	return errDiffers
}
