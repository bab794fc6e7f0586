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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/argument"
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

// setNames returns the sets that the arguments name: at least one, and no more than most.
func setNames(cmd *cobra.Command, args []string, most int) ([]string, error) {
	names, err := argument.Sets.Names(args)
	if err == nil && (len(names) == 0 || len(names) > most) {
		err = fmt.Errorf("expected: %s; list LeaderWorkerSets with: kubectl get leaderworkersets", cmd.UseLine())
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

// each runs do for each named object, and goes on to the others when one fails.
func (c *cluster) each(names []string, do func(types.NamespacedName) error) error {
	var all []error
	for _, name := range names {
		all = append(all, do(c.key(name)))
	}
	return errors.Join(all...)
}

// amendment holds the flags of a command that changes objects.
type amendment struct {
	*options
	format *genericclioptions.PrintFlags
	dryRun string
}

// amendCommand completes a command whose change is the result of decide.
func (o *options) amendCommand(cmd *cobra.Command, decide func() lws.Decide) *cobra.Command {
	a := o.addAmendment(cmd)
	o.completeNames(cmd, many, argument.Sets)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := setNames(cmd, args, many)
		if err != nil {
			return err
		}
		return o.amend(cmd.Context(), names, a, decide())
	}
	return cmd
}

// addAmendment adds the flags of a command that changes objects. They are read before it runs.
func (o *options) addAmendment(cmd *cobra.Command) *amendment {
	a := &amendment{options: o, format: genericclioptions.NewPrintFlags("").WithTypeSetter(lws.Scheme())}
	a.format.AddFlags(cmd)
	cmd.Flags().StringVar(&a.dryRun, "dry-run", lws.DryRunNone, "none, client (print the change) or server (the API server tries it and stores nothing)")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = lws.DryRunClient
	return a
}

// editor returns what changes objects as the flags say.
func (a *amendment) editor(ctx context.Context) (*cluster, *lws.Editor, error) {
	if _, err := a.format.ToPrinter(); err != nil {
		return nil, nil, fmt.Errorf("--output: %w", err)
	}
	if dryRuns := []string{lws.DryRunNone, lws.DryRunClient, lws.DryRunServer}; !slices.Contains(dryRuns, a.dryRun) {
		return nil, nil, fmt.Errorf("--dry-run %q: give one of %s", a.dryRun, strings.Join(dryRuns, ", "))
	}
	c, live, err := a.client(ctx)
	return c, &lws.Editor{Client: live, DryRun: a.dryRun}, err
}

// print prints what became of an object, as in "paused", or the object.
func (a *amendment) print(verb string, after runtime.Object) error {
	a.format.NamePrintFlags.Operation = verb
	if a.dryRun != lws.DryRunNone {
		if err := a.format.Complete("%s (" + a.dryRun + " dry run)"); err != nil {
			return err
		}
	}
	printer, err := a.format.ToPrinter()
	if err != nil {
		return err
	}
	if *a.format.OutputFormat == "" {
		return printer.PrintObj(after, a.Out)
	}
	return printer.PrintObj(after, a.forPrograms())
}

func (o *options) amend(ctx context.Context, names []string, a *amendment, decide lws.Decide) error {
	c, editor, err := a.editor(ctx)
	if err != nil {
		return err
	}
	return c.each(names, func(key types.NamespacedName) error {
		change, after, err := editor.Amend(ctx, key, decide)
		switch {
		case apierrors.IsNotFound(err):
			return noSuch("leaderworkerset", key)
		case err != nil:
			return c.explain(err, writeSets)
		}
		return a.print(change.Verb, after)
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
	var all []page.Report
	err = session.each(names, func(key types.NamespacedName) error {
		found, revisions, err := session.history(ctx, key)
		if err == nil {
			all = append(all, render.History(found, revisions))
		}
		return err
	})
	return errors.Join(out.print(all...), err)
}

// history reads a set and all its revisions.
func (s *session) history(ctx context.Context, key types.NamespacedName) (lws.Survey, []*appsv1.ControllerRevision, error) {
	found, err := s.survey(ctx, key)
	if err != nil {
		return found, nil, err
	}
	revisions, err := lwscache.Revisions(ctx, s.Live, found.Set.Set)
	return found, revisions, s.explain(err, readSets)
}

func (o *options) rolloutDiffCommand() *cobra.Command {
	var of render.Comparison
	cmd := describe("rollout diff")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if of.To != render.Live && of.From == render.Live {
			return errors.New("--to-revision needs --revision, the one to compare with")
		}
		names, err := setNames(cmd, args, 1)
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
		names, err := setNames(cmd, args, many)
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
	session, err := o.session(ctx)
	if err != nil {
		return gaveUp(ctx, err, "reading the sets")
	}
	return session.each(names, func(key types.NamespacedName) error {
		return session.followRollout(ctx, key, f)
	})
}

// followRollout prints how far one set's rollout is until it is done.
func (s *session) followRollout(ctx context.Context, key types.NamespacedName, f follow) error {
	var uid types.UID
	last := fmt.Sprintf("reading leaderworkerset %q", key.Name)
	for {
		found, err := s.Set(ctx, key, s.now())
		switch {
		case apierrors.IsNotFound(err) && uid == "":
			return noSuch("leaderworkerset", key)
		case apierrors.IsNotFound(err), err == nil && uid != "" && found.Set.Set.UID != uid:
			return fmt.Errorf("leaderworkerset %q was deleted", key.Name)
		case err != nil:
			return gaveUp(ctx, s.explain(err, readSets), last)
		case found.Set.Set.DeletionTimestamp != nil:
			return fmt.Errorf("leaderworkerset %q is being deleted", key.Name)
		}
		uid = found.Set.Set.UID
		r := render.RolloutOf(found)
		if f.revision != 0 && r.Number != 0 && r.Number != f.revision {
			return fmt.Errorf("leaderworkerset %q: desired revision (%d) is different from the running revision (%d)", key.Name, f.revision, r.Number)
		}
		current := true
		if r.Done || r.Failure != "" {
			if current, err = latest(ctx, s.Live, found.Set.Set); err != nil {
				return gaveUp(ctx, err, last)
			}
		}
		if !r.Done {
			r.Message = fmt.Sprintf("leaderworkerset %q: %s", key.Name, r.Message)
		}
		if current && r.Failure != "" {
			return fmt.Errorf("leaderworkerset %q: %s", key.Name, r.Failure)
		}
		if current && r.Message != last {
			fmt.Fprintln(s.Out, r.Message)
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
