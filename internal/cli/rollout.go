package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/disaggregated"
	"lockstep.dev/lockstep/internal/cli/follow"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/lwscache"
)

func (o *options) rolloutCommand() *cobra.Command {
	cmd := describe("rollout")
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(o.rolloutStatusCommand(), o.rolloutHistoryCommand(), o.rolloutDiffCommand(), o.rolloutUndoCommand(),
		o.amendCommand(describe("rollout restart"), func() (lws.Decide, disaggregated.Decide) {
			return lws.Restart(time.Now()), disaggregated.Restart(time.Now())
		}),
		o.amendCommand(describe("rollout pause"), func() (lws.Decide, disaggregated.Decide) { return lws.Pause, lws.Pause }),
		o.amendCommand(describe("rollout resume"), func() (lws.Decide, disaggregated.Decide) { return lws.Resume, lws.Resume }))
	return cmd
}

// many is no limit on names.
const many = math.MaxInt

// setNames returns the sets that the arguments name, or a set with its group and worker: so many at least and at most.
func setNames(cmd *cobra.Command, args []string, least, most int) ([]string, error) {
	read := argument.Sets.All
	if most == many {
		read = argument.Sets.Names
	}
	names, err := read(args)
	if err == nil && (len(names) < least || len(names) > most) {
		err = fmt.Errorf("expected: %s; list LeaderWorkerSets with: kubectl get leaderworkersets, and groups with: kubectl lockstep status NAME", cmd.UseLine())
	}
	return names, err
}

// setsOf returns which sets of which kind the arguments name. DisaggregatedSets have no groups: they are one, or many.
func setsOf(cmd *cobra.Command, args []string, least, most int) (noun string, names []string, err error) {
	if !argument.DisaggregatedSets.IsGiven(args) {
		names, err = setNames(cmd, args, least, most)
		return lws.NounOf[*lwsv1.LeaderWorkerSet](), names, err
	}
	names, err = argument.DisaggregatedSets.Names(args)
	if err == nil && len(names) > 1 && most < many {
		err = errors.New("give one DisaggregatedSet, as dset/NAME; show a group with the LeaderWorkerSet of its role")
	}
	return disaggregated.Noun, names, err
}

// notNegative refuses the negative value of a flag.
func notNegative[T ~int64](flag string, value T) error {
	if value < 0 {
		return fmt.Errorf("%s %v: it must not be negative", flag, value)
	}
	return nil
}

// addRevision adds a flag with the number of a revision, which is completed.
func (o *options) addRevision(cmd *cobra.Command, number *int64, name, usage string) {
	cmd.Flags().Int64Var(number, name, 0, usage)
	o.completeFlag(cmd, name, argument.RevisionNumbers)
}

// amendment holds the flags of a command that changes objects.
type amendment struct {
	print  *genericclioptions.PrintFlags
	dryRun string
}

// addAmendment adds the flags of a command that changes objects. They are read before it runs.
func addAmendment(cmd *cobra.Command) *amendment {
	a := &amendment{print: genericclioptions.NewPrintFlags("").WithTypeSetter(lws.Scheme())}
	a.print.AddFlags(cmd)
	cmd.Flags().StringVar(&a.dryRun, "dry-run", lws.DryRunNone, "none, client (print the change) or server (the API server tries it and stores nothing)")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = lws.DryRunClient
	return a
}

// requestCommand returns a command that asks for one group.
func (o *options) requestCommand(verb string, request lws.Request) *cobra.Command {
	cmd := describe(verb)
	a := addAmendment(cmd)
	cmd.ValidArgsFunction = o.completion(argument.GroupNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := setNames(cmd, args, 2, 2)
		if err != nil {
			return err
		}
		return amend(cmd.Context(), o, names[:1], a, "get leaderworkersets, and list and patch pods", lws.Ask(names[1], verb, request))
	}
	return cmd
}

// amendCommand completes a command whose change is the result of decide.
func (o *options) amendCommand(cmd *cobra.Command, decide func() (lws.Decide, disaggregated.Decide)) *cobra.Command {
	a := addAmendment(cmd)
	o.completeNames(cmd, many, argument.Sets, argument.DisaggregatedSets)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		noun, names, err := setsOf(cmd, args, 1, many)
		ofSets, ofRoles := decide()
		switch {
		case err != nil:
			return err
		case noun == disaggregated.Noun:
			return amend(cmd.Context(), o, names, a, cluster.WriteRoles, ofRoles)
		}
		return amend(cmd.Context(), o, names, a, cluster.WriteSets, ofSets)
	}
	return cmd
}

func amend[Set client.Object](ctx context.Context, o *options, names []string, a *amendment, needs string, decide lws.DecideOf[Set]) error {
	if _, err := a.print.ToPrinter(); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if dryRuns := []string{lws.DryRunNone, lws.DryRunClient, lws.DryRunServer}; !slices.Contains(dryRuns, a.dryRun) {
		return fmt.Errorf("--dry-run %q: give one of %s", a.dryRun, strings.Join(dryRuns, ", "))
	}
	c, live, err := o.Client(ctx)
	if err != nil {
		return err
	}
	editor := &lws.Editor{Client: live, DryRun: a.dryRun}
	return c.Each(names, func(key types.NamespacedName) error {
		change, err := lws.Amend(ctx, editor, key, decide)
		switch {
		case apierrors.IsNotFound(err):
			return cluster.NoSuch(lws.NounOf[Set](), key)
		case err != nil:
			return c.Explain(err, needs)
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
		if *a.print.OutputFormat == "" {
			return printer.PrintObj(change.After, o.Out)
		}
		return printer.PrintObj(change.After, o.forPrograms())
	})
}

func (o *options) rolloutUndoCommand() *cobra.Command {
	var revision int64
	cmd := describe("rollout undo")
	cmd.PreRunE = func(*cobra.Command, []string) error { return notNegative("--to-revision", revision) }
	o.addRevision(cmd, &revision, "to-revision", "the revision to restore; zero means the previous one")
	return o.amendCommand(cmd, func() (lws.Decide, disaggregated.Decide) { return lws.Undo(revision), disaggregated.Undo(revision) })
}

func (o *options) rolloutHistoryCommand() *cobra.Command {
	cmd := describe("rollout history")
	out := o.addOutput(cmd)
	o.completeNames(cmd, many, argument.Sets, argument.DisaggregatedSets)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		noun, names, err := setsOf(cmd, args, 1, many)
		switch {
		case err != nil:
			return err
		case noun == disaggregated.Noun:
			return o.rolloutHistory(cmd.Context(), noun, names, out, disaggregated.Read(cmd.Context(), disaggregated.History))
		}
		return o.rolloutHistory(cmd.Context(), noun, names, out, func(s *cluster.Session, key types.NamespacedName) (page.Report, error) {
			found, revisions, err := history(cmd.Context(), s, key)
			if err != nil {
				return nil, err
			}
			return render.History(found, revisions), nil
		})
	}
	return cmd
}

func (o *options) rolloutHistory(ctx context.Context, noun string, names []string, out *output, read disaggregated.Reader) error {
	session, err := o.Session(ctx)
	if err != nil {
		return err
	}
	var all []page.Report
	err = session.Each(names, func(key types.NamespacedName) error {
		h, err := read(session, key)
		if apierrors.IsNotFound(err) {
			return cluster.NoSuch(noun, key)
		} else if err == nil {
			all = append(all, h)
		}
		return session.Explain(err, cluster.ReadSets)
	})
	return errors.Join(out.print(all...), err)
}

// history reads a set and all its revisions.
func history(ctx context.Context, s *cluster.Session, key types.NamespacedName) (lws.Survey, []*appsv1.ControllerRevision, error) {
	found, err := s.Survey(ctx, key)
	if err != nil {
		return found, nil, err
	}
	revisions, err := lwscache.Revisions(ctx, s.Live, found.Set.Set)
	return found, revisions, s.Explain(err, cluster.ReadSets)
}

func (o *options) rolloutDiffCommand() *cobra.Command {
	var of render.Comparison
	cmd := describe("rollout diff")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if of.To != render.Live && of.From == render.Live {
			return errors.New("--to-revision needs --revision, the one to compare with")
		}
		noun, names, err := setsOf(cmd, args, 1, 1)
		if err != nil {
			return err
		}
		session, err := o.Session(cmd.Context())
		if err != nil {
			return err
		}
		compare := disaggregated.Diff
		if noun != disaggregated.Noun {
			compare = compared
		}
		text, same, err := compare(cmd.Context(), session, session.Key(names[0]), of)
		if err == nil && text == "" {
			fmt.Fprintln(o.ErrOut, same)
		}
		fmt.Fprint(o.Out, text)
		return err
	}
	o.completeNames(cmd, 1, argument.Sets, argument.DisaggregatedSets)
	o.addRevision(cmd, &of.From, "revision", "compare this revision")
	o.addRevision(cmd, &of.To, "to-revision", "compare with this revision, in place of the spec")
	return cmd
}

// compared returns the difference of two revisions of a LeaderWorkerSet, and what to say if there is none.
func compared(ctx context.Context, s *cluster.Session, key types.NamespacedName, of render.Comparison) (text, same string, err error) {
	found, revisions, err := history(ctx, s, key)
	if err == nil && of == (render.Comparison{}) {
		of, err = render.UsualComparison(found.Set.Set, revisions)
	}
	if err != nil {
		return "", "", err
	}
	text, err = render.Compare(found.Set.Set, revisions, of)
	return text, render.Same(found.Set.Set, revisions, of), err
}

func (o *options) rolloutStatusCommand() *cobra.Command {
	var q follow.Question
	cmd := describe("rollout status")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		noun, names, err := setsOf(cmd, args, 1, many)
		rollouts := o.rollouts
		if noun == disaggregated.Noun {
			rollouts = disaggregated.Rollouts(o.Flags)
		}
		if err := errors.Join(err, notNegative("--timeout", q.Timeout), notNegative("--revision", q.Revision)); err != nil {
			return err
		}
		return q.Follow(cmd.Context(), o.Out, names, rollouts)
	}
	q.AddFlags(cmd.Flags())
	o.completeNames(cmd, many, argument.Sets, argument.DisaggregatedSets)
	o.addRevision(cmd, &q.Revision, "revision", "fail when another revision is rolled out; zero means the latest")
	return cmd
}

// rollouts reads the rollouts of LeaderWorkerSets from a cache. It may lag behind the change that the user waits for.
func (o *options) rollouts(ctx context.Context) (*follow.Rollouts, error) {
	s, err := o.Session(ctx)
	if err != nil {
		return nil, err
	}
	read := func(key types.NamespacedName) (standing follow.Standing, err error) {
		found, err := s.Set(ctx, key, s.Now())
		if err != nil {
			return standing, s.Explain(err, cluster.ReadSets)
		}
		set, r := found.Set.Set, render.RolloutOf(found)
		standing = follow.Standing{UID: set.UID, IsDeleting: set.DeletionTimestamp != nil, Number: r.Number, IsDone: r.Done, IsFailed: r.Failed, Message: r.Message}
		if r.Done || r.Failed {
			now := &lwsv1.LeaderWorkerSet{}
			err = s.Live.Get(ctx, key, now)
			standing.IsStale = now.UID != set.UID || now.Generation != set.Generation
		}
		return standing, err
	}
	return &follow.Rollouts{Noun: "leaderworkerset", Key: s.Key, Read: read, Await: s.Await}, nil
}
