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
		o.amendCommand(describe("rollout restart"), func() lws.Decide { return lws.Restart(time.Now()) }),
		o.amendCommand(describe("rollout pause"), func() lws.Decide { return lws.Pause }),
		o.amendCommand(describe("rollout resume"), func() lws.Decide { return lws.Resume }))
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
		return o.amend(cmd.Context(), names[:1], a, "get leaderworkersets, and list and patch pods", lws.Ask(names[1], verb, request))
	}
	return cmd
}

// amendCommand completes a command whose change is the result of decide.
func (o *options) amendCommand(cmd *cobra.Command, decide func() lws.Decide) *cobra.Command {
	a := addAmendment(cmd)
	o.completeNames(cmd, many, argument.Sets)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := setNames(cmd, args, 1, many)
		if err != nil {
			return err
		}
		return o.amend(cmd.Context(), names, a, cluster.WriteSets, decide())
	}
	return cmd
}

func (o *options) amend(ctx context.Context, names []string, a *amendment, needs string, decide lws.Decide) error {
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
		change, err := editor.Amend(ctx, key, decide)
		switch {
		case apierrors.IsNotFound(err):
			return cluster.NoSuch("leaderworkerset", key)
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
	return o.amendCommand(cmd, func() lws.Decide { return lws.Undo(revision) })
}

func (o *options) rolloutHistoryCommand() *cobra.Command {
	cmd := describe("rollout history")
	out := o.addOutput(cmd)
	o.completeNames(cmd, many, argument.Sets)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := setNames(cmd, args, 1, many)
		if err != nil {
			return err
		}
		return o.rolloutHistory(cmd.Context(), names, out)
	}
	return cmd
}

func (o *options) rolloutHistory(ctx context.Context, names []string, out *output) error {
	session, err := o.Session(ctx)
	if err != nil {
		return err
	}
	var all []page.Report
	err = session.Each(names, func(key types.NamespacedName) error {
		found, revisions, err := history(ctx, session, key)
		if err == nil {
			all = append(all, render.History(found, revisions))
		}
		return err
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
		names, err := setNames(cmd, args, 1, 1)
		if err != nil {
			return err
		}
		return o.rolloutDiff(cmd.Context(), names[0], of)
	}
	o.completeNames(cmd, 1, argument.Sets)
	o.addRevision(cmd, &of.From, "revision", "compare this revision")
	o.addRevision(cmd, &of.To, "to-revision", "compare with this revision, in place of the spec")
	return cmd
}

func (o *options) rolloutDiff(ctx context.Context, name string, of render.Comparison) error {
	session, err := o.Session(ctx)
	if err != nil {
		return err
	}
	found, revisions, err := history(ctx, session, session.Key(name))
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
		fmt.Fprintln(o.ErrOut, render.Same(found.Set.Set, revisions, of))
	}
	fmt.Fprint(o.Out, text)
	return err
}

// follow is how a rollout is followed.
type follow struct {
	watch    bool
	timeout  time.Duration
	revision int64
}

func (o *options) rolloutStatusCommand() *cobra.Command {
	var f follow
	cmd := describe("rollout status")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := setNames(cmd, args, 1, many)
		if err := errors.Join(err, notNegative("--timeout", f.timeout), notNegative("--revision", f.revision)); err != nil {
			return err
		}
		return o.rolloutStatus(cmd.Context(), names, f)
	}
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", true, "follow the rollout until it is done")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "how long to wait; zero means for ever")
	o.completeNames(cmd, many, argument.Sets)
	o.addRevision(cmd, &f.revision, "revision", "fail when another revision is rolled out; zero means the latest")
	return cmd
}

func (o *options) rolloutStatus(ctx context.Context, names []string, f follow) error {
	if f.timeout > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("timed out after %s", f.timeout))
		defer done()
	}
	session, err := o.Session(ctx)
	if err != nil {
		return gaveUp(ctx, err, "reading the sets")
	}
	return session.Each(names, func(key types.NamespacedName) error {
		return o.followRollout(ctx, session, key, f)
	})
}

// followRollout prints how far one set's rollout is until it is done.
func (o *options) followRollout(ctx context.Context, s *cluster.Session, key types.NamespacedName, f follow) error {
	var uid types.UID
	last := fmt.Sprintf("reading leaderworkerset %q", key.Name)
	for {
		found, err := s.Set(ctx, key, s.Now())
		switch {
		case apierrors.IsNotFound(err) && uid == "":
			return cluster.NoSuch("leaderworkerset", key)
		case apierrors.IsNotFound(err), err == nil && uid != "" && found.Set.Set.UID != uid:
			return fmt.Errorf("leaderworkerset %q was deleted", key.Name)
		case err != nil:
			return gaveUp(ctx, s.Explain(err, cluster.ReadSets), last)
		case found.Set.Set.DeletionTimestamp != nil:
			return fmt.Errorf("leaderworkerset %q is being deleted", key.Name)
		}
		uid = found.Set.Set.UID
		r := render.RolloutOf(found)
		if f.revision != 0 && r.Number != 0 && r.Number != f.revision {
			return fmt.Errorf("leaderworkerset %q: desired revision (%d) is different from the running revision (%d)", key.Name, f.revision, r.Number)
		}
		current := true
		if r.Done || r.Failed {
			if current, err = latest(ctx, s.Live, found.Set.Set); err != nil {
				return gaveUp(ctx, err, last)
			}
		}
		if !r.Done {
			r.Message = fmt.Sprintf("leaderworkerset %q: %s", key.Name, r.Message)
		}
		if current && r.Failed {
			return errors.New(r.Message)
		}
		if current && r.Message != last {
			fmt.Fprintln(o.Out, r.Message)
			last = r.Message
		}
		if current && (r.Done || !f.watch) {
			return nil
		}
		if err := s.Await(); err != nil {
			return gaveUp(ctx, err, last)
		}
	}
}

// latest reports whether the cache has the stored generation of a set: it may lag behind the change
// that the user waits for.
func latest(ctx context.Context, live client.Reader, seen *lwsv1.LeaderWorkerSet) (bool, error) {
	now := &lwsv1.LeaderWorkerSet{}
	err := live.Get(ctx, types.NamespacedName{Namespace: seen.Namespace, Name: seen.Name}, now)
	if apierrors.IsNotFound(err) {
		return false, fmt.Errorf("leaderworkerset %q was deleted", seen.Name)
	}
	return now.UID == seen.UID && now.Generation == seen.Generation, err
}

// gaveUp returns what the command still waited for, if its time is up.
func gaveUp(ctx context.Context, err error, message string) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case errors.Is(cause, context.Canceled):
		return fmt.Errorf("interrupted while %s", message)
	default:
		return fmt.Errorf("%w, still %s", cause, message)
	}
}
