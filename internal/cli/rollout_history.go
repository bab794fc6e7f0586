package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
)

func (o *options) rolloutHistoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history NAME...",
		Short: "List the revisions of a set, and how many groups run each",
		Long: `List the revisions of a set by rising number: how many groups run each, when it was first rolled
out, and its change cause (kubernetes.io/change-cause). The annotation
lockstep.dev/revision-history-limit on the set is the number of unused revisions to keep, 5 when absent.`,
		Example: `  kubectl lockstep rollout history llama
  kubectl lockstep rollout history llama -o yaml`,
	}
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := setNames(cmd, args, many)
		if err != nil {
			return err
		}
		return o.rolloutHistory(cmd.Context(), names, out)
	}
	return cmd
}

func (o *options) rolloutHistory(ctx context.Context, names []string, out *output) error {
	session, err := o.session(ctx)
	if err != nil {
		return err
	}
	var all []render.Report
	err = session.each(names, func(key types.NamespacedName) error {
		found, revisions, err := session.history(ctx, key)
		if err == nil {
			all = append(all, render.History(found, revisions))
		}
		return err
	})
	return errors.Join(out.print(o.Out, all...), err)
}

// history reads a set and all its revisions.
func (s *session) history(ctx context.Context, key types.NamespacedName) (lws.Survey, []*appsv1.ControllerRevision, error) {
	found, err := s.survey(ctx, key)
	if err != nil {
		return found, nil, err
	}
	revisions, err := lws.Revisions(ctx, s.Live, found.Set.Set)
	return found, revisions, s.explain(err, readSets)
}

func (o *options) rolloutDiffCommand() *cobra.Command {
	var of render.Comparison
	cmd := &cobra.Command{
		Use:   "diff NAME",
		Short: "Show what differs between two revisions, or a revision and the spec",
		Long: `Show what differs between two revisions, or between a revision and the set's spec, as diff -u
does. Without --revision, show the change that is not rolled out yet, as while the rollout is
paused; or, if there is none, the last rollout.`,
		Example: `  kubectl lockstep rollout diff llama
  kubectl lockstep rollout diff llama --revision=3
  kubectl lockstep rollout diff llama --revision=3 --to-revision=4`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if of.To != render.Live && of.From == render.Live {
				return errors.New("--to-revision needs --revision, the one to compare with")
			}
			names, err := setNames(cmd, args, 1)
			if err != nil {
				return err
			}
			return o.rolloutDiff(cmd.Context(), names[0], of)
		},
	}
	cmd.Flags().Int64Var(&of.From, "revision", render.Live, "compare this revision")
	cmd.Flags().Int64Var(&of.To, "to-revision", render.Live, "compare with this revision, in place of the spec")
	return cmd
}

func (o *options) rolloutDiff(ctx context.Context, name string, of render.Comparison) error {
	session, err := o.session(ctx)
	if err != nil {
		return err
	}
	found, revisions, err := session.history(ctx, session.key(name))
	if err != nil {
		return err
	}
	if of == (render.Comparison{}) {
		if of, err = render.UsualComparison(found.Set.Set, revisions); err != nil {
			return err
		}
	}
	text, err := render.Compare(found.Set.Set, revisions, of)
	if err == nil && text == "" {
		fmt.Fprintln(o.ErrOut, render.Same(found.Set.Set, of))
	}
	fmt.Fprint(o.Out, text)
	return err
}
