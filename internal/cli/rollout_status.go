package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/render"
)

// follow is how a rollout is followed.
type follow struct {
	watch    bool
	timeout  time.Duration
	revision int64
}

func (o *options) rolloutStatusCommand() *cobra.Command {
	var f follow
	cmd := &cobra.Command{
		Use:   "status NAME...",
		Short: "Follow a rollout until it is done",
		Long: `Follow a rollout until every group of the target is updated and ready. Each change of what it
waits for is one line. With --watch=false, print the state once.

It ends with 0 when the rollout is done, or when the state was printed once; and with 1 when the
time is up, the set is deleted, or another revision than --revision is rolled out.`,
		Example: `  kubectl lockstep rollout status llama
  kubectl lockstep rollout status lws/llama --timeout=10m
  kubectl lockstep rollout status llama --watch=false`,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := setNames(cmd, args, many)
		if err := errors.Join(err, notNegative("--timeout", f.timeout), notNegative("--revision", f.revision)); err != nil {
			return err
		}
		return o.rolloutStatus(cmd.Context(), names, f)
	}
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", true, "follow the rollout until it is done")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "how long to wait; zero means for ever")
	cmd.Flags().Int64Var(&f.revision, "revision", 0, "fail when another revision is rolled out; zero means the latest")
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
		found, err := s.Set(ctx, key, time.Now())
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
		if r.Done {
			if current, err = latest(ctx, s.Live, found.Set.Set); err != nil {
				return gaveUp(ctx, err, last)
			}
		} else {
			r.Message = fmt.Sprintf("leaderworkerset %q: %s", key.Name, r.Message)
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
